(** * One draft: accept it or sample the residual (theory, section 4; [3]).

    The building block of every other verifier. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section SingleDraft.
Variables (R : realFieldType) (V : finType).
Implicit Types (p q r a : V -> R).

Definition pos (x : R) : R := Num.max x 0.

(** The residual: the positive part of p - q, normalised; p itself when nothing
    is left (which is reached with probability 0). *)
Definition residual_mass p q : R := \sum_j pos (p j - q j).
Definition residual p q : V -> R :=
  fun j => if residual_mass p q == 0 then p j else pos (p j - q j) / residual_mass p q.

(** The probability of accepting the draft [i]. *)
Definition accept p q i : R := Num.min 1 (p i / q i).

(** Given the draft [i]: emit it with probability [a i], else sample [r]. *)
Definition accept_or a r (i j : V) : R := a i * (i == j)%:R + (1 - a i) * r j.

Lemma pos_ge0 x : 0 <= pos x. Proof. by rewrite le_maxr lexx orbT. Qed.

Lemma min_pos x y : Num.min y x + pos (x - y) = x.
Proof.
rewrite /pos; case: (leP y x) => h.
  by rewrite (max_idPl _) ?subr_ge0 // addrC subrK.
by rewrite (max_idPr _) ?addr0 // subr_le0 ltW.
Qed.

Lemma residual_mass_ge0 p q : 0 <= residual_mass p q.
Proof. by apply: sumr_ge0 => j _; apply: pos_ge0. Qed.

Lemma residual_mul p q j : residual_mass p q * residual p q j = pos (p j - q j).
Proof.
rewrite /residual; case: (eqVneq (residual_mass p q) 0) => [z|nz]; last by rewrite mulrC divfK.
rewrite z mul0r; move/eqP: z; rewrite /residual_mass psumr_eq0 => [|i _]; last exact: pos_ge0.
by move=> /allP/(_ j (mem_index_enum j))/eqP ->.
Qed.

Lemma residual_dist p q : is_dist p -> is_dist (residual p q).
Proof.
move=> [p0 p1]; split=> [j|]; rewrite /residual; case: eqP => [z|/eqP nz] //.
  by rewrite divr_ge0 ?pos_ge0 // residual_mass_ge0.
by rewrite -mulr_suml divff.
Qed.

Lemma accept_ge0 p q i : 0 <= p i -> 0 <= q i -> 0 <= accept p q i.
Proof. by move=> p0 q0; rewrite /accept le_minr ler01 divr_ge0. Qed.

Lemma accept_le1 p q i : accept p q i <= 1.
Proof. by rewrite /accept le_minl lexx. Qed.

Lemma acceptE p q i : 0 <= p i -> 0 <= q i -> q i * accept p q i = Num.min (q i) (p i).
Proof.
move=> pi0 qi0; rewrite /accept; case: (eqVneq (q i) 0) => [->|nz].
  by rewrite mul0r (min_idPl pi0).
have qp : 0 < q i by rewrite lt_neqAle eq_sym nz.
by rewrite minr_pmulr // mulr1 mulrC divfK.
Qed.

Lemma accept_or_dist a r i :
  0 <= a i -> a i <= 1 -> is_dist r -> is_dist (accept_or a r i).
Proof.
move=> a0 a1 [r0 r1]; split=> [j|].
  by rewrite addr_ge0 ?mulr_ge0 ?ler0n ?subr_ge0.
rewrite big_split /= -!mulr_sumr r1 (bigD1 i) //= eqxx big1 => [|j /negbTE].
  by rewrite addr0 !mulr1 addrC subrK.
by rewrite eq_sym => ->.
Qed.

Lemma sum_accept_or q a r j :
  \sum_i q i * accept_or a r i j = q j * a j + (\sum_i (q i - q i * a i)) * r j.
Proof.
rewrite /accept_or.
rewrite (eq_bigr (fun i => q i * a i * (i == j)%:R + (q i - q i * a i) * r j)) => [|i _]; last by ring.
rewrite big_split /= -mulr_suml; congr (_ + _).
rewrite (bigD1 j) //= eqxx mulr1 big1 ?addr0 // => i /negbTE ->.
by rewrite mulr0.
Qed.

(* the probability of rejection is the residual mass *)
Lemma rejection_mass p q : is_dist p -> is_dist q ->
  \sum_i (q i - q i * accept p q i) = residual_mass p q.
Proof.
move=> [p0 p1] [q0 q1].
have -> : \sum_i (q i - q i * accept p q i) = \sum_i (p i - q i * accept p q i).
  by rewrite !sumrB p1 q1.
apply: eq_bigr => i _; rewrite acceptE //.
by rewrite -{1}(min_pos (p i) (q i)) addrAC subrr add0r.
Qed.

Lemma residual_massE p q : is_dist p -> is_dist q ->
  residual_mass p q = 1 - \sum_i Num.min (q i) (p i).
Proof.
move=> dp dq; rewrite -rejection_mass // sumrB; case: (dq) (dp) => q0 -> [p0 _].
by congr (_ - _); apply: eq_bigr => i _; rewrite acceptE.
Qed.

(** The emitted token has law p. *)
Theorem speculative_law p q j : is_dist p -> is_dist q ->
  \sum_i q i * accept_or (accept p q) (residual p q) i j = p j.
Proof.
move=> dp dq; rewrite sum_accept_or rejection_mass // residual_mul.
by case: dp dq => [p0 _] [q0 _]; rewrite acceptE // min_pos.
Qed.

(* a rejected draft has no residual mass: it is not emitted afterwards *)
Lemma residual_rejected p q i : is_dist p -> is_dist q ->
  q i * (1 - accept p q i) * residual p q i = 0.
Proof.
move=> dp dq; have [[p0 _] [q0 _]] := (dp, dq).
rewrite mulrBr mulr1 acceptE //; case: (leP (q i) (p i)) => h.
  by rewrite subrr mul0r.
rewrite /residual; case: eqP => [z|_]; last first.
  by rewrite /pos (max_idPr _) ?mul0r ?mulr0 // subr_le0 ltW.
have /eqP := rejection_mass dp dq; rewrite z psumr_eq0 => [|j _].
  move=> /allP/(_ i (mem_index_enum i)); rewrite acceptE // (min_idPr (ltW h)).
  by move=> /eqP ->; rewrite mul0r.
by rewrite acceptE // subr_ge0 le_minl lexx.
Qed.

(** As a verifier of one draft. *)
Definition speculative p q (s : 1.-tuple V) : V -> R :=
  accept_or (accept p q) (residual p q) (thead s).

Lemma sum_tuple1 (F : 1.-tuple V -> R) : \sum_s F s = \sum_v F [tuple v].
Proof. by rewrite sum_tuple_cons; apply: eq_bigr => v _; rewrite sum_tuple0; congr F; apply: val_inj. Qed.

(** Single-draft speculative sampling is lossless ... *)
Theorem speculative_lossless p q : is_dist p -> is_dist q ->
  lossless (fun s : 1.-tuple V => q (thead s)) p (speculative p q).
Proof.
move=> dp dq; have [[p0 _] [q0 _]] := (dp, dq); split=> [s|j].
  by apply: accept_or_dist; [exact: accept_ge0|exact: accept_le1|exact: residual_dist].
by rewrite /emitted sum_tuple1 -[RHS](speculative_law j dp dq).
Qed.

(** ... and accepts with probability sum min(p, q). *)
Theorem speculative_acceptance p q : is_dist p -> is_dist q ->
  acceptance (fun s : 1.-tuple V => q (thead s)) (speculative p q)
  = \sum_i Num.min (q i) (p i).
Proof.
move=> dp dq; have [[p0 _] [q0 _]] := (dp, dq).
rewrite /acceptance sum_tuple1; apply: eq_bigr => v _.
rewrite (big_pred1 v) => [|i]; last by rewrite inE.
rewrite /speculative theadE /accept_or eqxx mulr1 mulrDr mulrA residual_rejected //.
by rewrite addr0 acceptE.
Qed.

End SingleDraft.
