(** * Canonical decomposition: select one draft, then speculate (theory, section 4; [7]).

    Any selection rule gives a lossless verifier, and no verifier is better than
    the best of these. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions Duality SingleDraft.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Select.
Variables (R : realFieldType) (V : finType) (n : nat).
Variables (pd : n.-tuple V -> R) (p : V -> R) (sel : n.-tuple V -> V -> R).

(** [sel s] is the law of the token selected among the drafts [s]; over all drafts
    it has law t = [selected]. *)
Definition selected : V -> R := fun i => \sum_s pd s * sel s i.

(** Select a token, then run single-draft speculative sampling from t to p. *)
Definition select_then_speculate (s : n.-tuple V) (j : V) : R :=
  \sum_i sel s i * accept_or (accept p selected) (residual p selected) i j.

Hypotheses (dd : is_dist pd) (dp : is_dist p) (ds : forall s, is_dist (sel s)).

Let pd0 s : 0 <= pd s. Proof. by case: dd. Qed.
Let p0 i : 0 <= p i. Proof. by case: dp. Qed.
Let s0 s i : 0 <= sel s i. Proof. by case: (ds s). Qed.

Lemma selected_dist : is_dist selected.
Proof.
split=> [i|]; first by apply: sumr_ge0 => s _; rewrite mulr_ge0.
rewrite /selected exchange_big /=; case: dd => _ <-; apply: eq_bigr => s _.
by rewrite -mulr_sumr; case: (ds s) => _ ->; rewrite mulr1.
Qed.

Let t0 i : 0 <= selected i. Proof. by case: selected_dist. Qed.
Let spec_dist i : is_dist (accept_or (accept p selected) (residual p selected) i).
Proof. by apply: accept_or_dist; [exact: accept_ge0|exact: accept_le1|exact: residual_dist]. Qed.

(** Lossless for any selection. *)
Theorem select_lossless : lossless pd p select_then_speculate.
Proof.
split=> [s|j]; rewrite /select_then_speculate /emitted.
  split=> [j|]; first by apply: sumr_ge0 => i _; rewrite mulr_ge0 //; case: (spec_dist i).
  rewrite exchange_big /=; case: (ds s) => _ <-; apply: eq_bigr => i _.
  by rewrite -mulr_sumr; case: (spec_dist i) => _ ->; rewrite mulr1.
rewrite -[RHS](speculative_law j dp selected_dist).
rewrite (eq_bigr _ (fun s _ => mulr_sumr _ _ _ _)) exchange_big /=.
apply: eq_bigr => i _; rewrite {3}/selected mulr_suml.
by apply: eq_bigr => s _; rewrite mulrA.
Qed.

Hypothesis sel_in : forall s i, i \notin s -> sel s i = 0.

(** It accepts at least when the selected token is accepted; in addition the
    residual may land on a token of [T] that is always among the drafts. *)
Lemma select_acceptance_fixed (T : {set V}) :
  (forall s i, pd s != 0 -> i \in T -> i \in s) -> (forall i, i \in T -> selected i = 0) ->
  mass p T + \sum_(i | i \notin T) Num.min (selected i) (p i)
  <= acceptance pd select_then_speculate.
Proof.
move=> Ts Tt; have dt := selected_dist.
have -> : mass p T + \sum_(i | i \notin T) Num.min (selected i) (p i)
  = \sum_i selected i * accept p selected i + \sum_(j in T) residual_mass p selected * residual p selected j.
  rewrite [\sum_i _ * _](bigID (mem T)) /= [X in _ = X + _ + _]big1 => [|i /Tt ->]; last by rewrite mul0r.
  rewrite add0r addrC; congr (_ + _); first by apply: eq_bigr => i _; rewrite acceptE.
  by apply: eq_bigr => i /Tt ti; rewrite residual_mul ti subr0 /pos (max_idPl _).
have -> : \sum_(j in T) residual_mass p selected * residual p selected j
  = \sum_i selected i * ((1 - accept p selected i) * \sum_(j in T) residual p selected j).
  rewrite -mulr_sumr -rejection_mass // mulr_suml; apply: eq_bigr => i _.
  by rewrite mulrA mulrBr mulr1.
rewrite -big_split /=.
rewrite (eq_bigr (fun i => \sum_s pd s * (sel s i * (accept p selected i
   + (1 - accept p selected i) * \sum_(j in T) residual p selected j)))); last first.
  move=> i _; rewrite -mulrDr {1}/selected mulr_suml.
  by apply: eq_bigr => s _; rewrite mulrA.
rewrite exchange_big /=; apply: ler_sum => s _.
rewrite -mulr_sumr; have [->|nz] := eqVneq (pd s) 0; first by rewrite !mul0r.
rewrite ler_wpmul2l // /select_then_speculate exchange_big /=; apply: ler_sum => i _.
have [is'|si] := boolP (i \in s); last by rewrite sel_in // mul0r big1 // => j _; rewrite mul0r.
rewrite -mulr_sumr ler_wpmul2l // /accept_or big_split /= ler_add //.
  rewrite -mulr_sumr ler_pemulr ?accept_ge0 //.
  rewrite (bigD1 i) //= eqxx ler_addl sumr_ge0 // => j _; exact: ler0n.
rewrite -mulr_sumr ler_wpmul2l ?subr_ge0 ?accept_le1 //.
apply: ler_sum_subset => [j /(Ts _ _ nz) //|j].
by case: (residual_dist selected dp).
Qed.

(** The selected token is accepted with probability sum min(t, p). *)
Theorem select_acceptance :
  \sum_i Num.min (selected i) (p i) <= acceptance pd select_then_speculate.
Proof.
have := @select_acceptance_fixed set0.
rewrite mass0 add0r (eq_bigl xpredT) => [|i]; last by rewrite inE.
by apply=> [s i|i]; rewrite inE.
Qed.

End Select.

Section Canonical.
Variables (R : realFieldType) (V : finType) (n : nat).
Variables (pd : n.+1.-tuple V -> R) (p : V -> R).
Hypotheses (dd : is_dist pd) (dp : is_dist p).

(** The selection read off a verifier: what it accepts, and the first draft for
    what it does not. *)
Definition read_off (k : n.+1.-tuple V -> V -> R) (s : n.+1.-tuple V) (i : V) : R :=
  (if i \in s then k s i else 0) + (1 - \sum_(j | j \in s) k s j) * (i == thead s)%:R.

(** Every lossless verifier is matched by select-then-speculate with a selection
    supported on the drafts. *)
Theorem canonical_decomposition k : lossless pd p k ->
  exists sel : n.+1.-tuple V -> V -> R,
   [/\ forall s, is_dist (sel s), forall s i, i \notin s -> sel s i = 0,
       lossless pd p (select_then_speculate pd p sel),
       acceptance pd k <= \sum_i Num.min (selected pd sel i) (p i)
     & acceptance pd k <= acceptance pd (select_then_speculate pd p sel)].
Proof.
move=> [vk kp]; have [pd0 _] := dd.
have k0 s i : 0 <= k s i by case: (vk s).
have in1 (s : n.+1.-tuple V) : \sum_(j | j \in s) k s j <= 1.
  by case: (vk s) => _ <-; apply: ler_sum_subset.
have ds s : is_dist (read_off k s).
  split=> [i|]; rewrite /read_off.
    by apply: addr_ge0; [case: ifP | rewrite mulr_ge0 ?ler0n ?subr_ge0].
  rewrite big_split /= -big_mkcond -mulr_sumr [X in _ + _ * X](bigD1 (thead s)) //= eqxx.
  by rewrite [X in _ + _ * (_ + X)]big1 => [|i /negbTE -> //]; rewrite addr0 mulr1 addrC subrK.
have ts (s : n.+1.-tuple V) : thead s \in s by rewrite [in X in _ \in X](tuple_eta s) mem_head.
have si (s : n.+1.-tuple V) i : i \notin s -> read_off k s i = 0.
  move=> is'; rewrite /read_off (negbTE is') add0r.
  by case: eqP => [e|_]; [move: is'; rewrite e ts | rewrite mulr0].
have ge : acceptance pd k <= \sum_i Num.min (selected pd (read_off k) i) (p i).
  rewrite /acceptance (eq_bigr (fun s : n.+1.-tuple V =>
     \sum_i pd s * (if i \in s then k s i else 0))); last first.
    by move=> s _; rewrite big_mkcond mulr_sumr.
  rewrite exchange_big /=; apply: ler_sum => i _; rewrite le_minr; apply/andP; split.
    apply: ler_sum => s _; rewrite ler_wpmul2l // /read_off ler_addl.
    by rewrite mulr_ge0 ?ler0n ?subr_ge0.
  by rewrite -kp; apply: ler_sum => s _; rewrite ler_wpmul2l //; case: ifP.
exists (read_off k); split=> //; first exact: select_lossless.
exact: le_trans ge (select_acceptance dd dp ds si).
Qed.

(** So the optimum is the best selection: alpha* = max over t of sum min(t, p). *)
Corollary canonical_optimum : exists sel : n.+1.-tuple V -> V -> R,
  [/\ forall s, is_dist (sel s), forall s i, i \notin s -> sel s i = 0,
      lossless pd p (select_then_speculate pd p sel),
      acceptance pd (select_then_speculate pd p sel) = \sum_i Num.min (selected pd sel i) (p i)
    & forall k, lossless pd p k -> acceptance pd k <= \sum_i Num.min (selected pd sel i) (p i)].
Proof.
have [pi [H [cpl ae _]]] := strong_duality dd dp.
have [k [lk jk]] := coupling_lossless dp cpl.
have ak : acceptance pd k = 1 + mass p H - qmass pd H.
  rewrite -ae -acceptance_joint; apply: eq_bigr => s _; apply: eq_bigr => i _; exact: jk.
have [sel [ds si ls ge1 ge2]] := canonical_decomposition lk.
have h1 := select_acceptance dd dp ds si.
have h2 := acceptance_bound H dd ls.
exists sel; split=> // [|k' lk'].
  by apply/eqP; rewrite eq_le h1 andbT; apply: le_trans h2 _; rewrite -ak.
by apply: le_trans ge1; rewrite ak; apply: acceptance_bound.
Qed.

End Canonical.
