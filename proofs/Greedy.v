(** * Greedy drafts, deterministic drafts and the naive verifier (theory, section 4;
    [1], sec. 5; SpecHub [6] proposes the same sets). *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions Duality WithReplacement SingleDraft CanonicalDecomposition TopThenSample.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** ** Naive: draw from p, accepted when it happens to be a draft *)
Section Naive.
Variables (R : realFieldType) (V : finType) (n : nat) (pd : n.-tuple V -> R) (p : V -> R).
Hypotheses (dd : is_dist pd) (dp : is_dist p).

Definition naive (s : n.-tuple V) : V -> R := p.

(** Lossless whatever the drafts. *)
Theorem naive_lossless : lossless pd p naive.
Proof.
split=> [s|i] //; rewrite /emitted /naive -mulr_suml.
by case: dd => _ ->; rewrite mul1r.
Qed.

(** Accepts with sum_i p(i) Pr(i is a draft). *)
Theorem naive_acceptance :
  acceptance pd naive = \sum_i p i * \sum_(s : n.-tuple V | i \in s) pd s.
Proof.
rewrite /acceptance (eq_bigr (fun s : n.-tuple V => \sum_i (if i \in s then p i * pd s else 0))).
  rewrite exchange_big /=; apply: eq_bigr => i _.
  by rewrite -big_mkcond mulr_sumr.
by move=> s _; rewrite mulr_sumr big_mkcond; apply: eq_bigr => i _; rewrite mulrC.
Qed.

End Naive.

(** ** Greedy: fixed tokens and one draw from the rest *)
Section Greedy.
Variables (R : realFieldType) (V : finType) (c : nat) (p q : V -> R) (top : c.-tuple V).
Notation q' := (rest q top).
Notation drafts := (top_then_sample q top (m := 1)).

(** Speculate from q' to p with the one sampled draft; the residual keeps p on the
    fixed tokens, where it counts as accepted. *)
Definition greedy (s : (c + 1).-tuple V) : V -> R :=
  if drop c s is x :: _ then accept_or (accept p q') (residual p q') x else p.

Hypotheses (dp : is_dist p) (q0 : forall v, 0 <= q v) (rest0 : 0 < \sum_(v | v \notin top) q v).

Let dr := rest_dist q0 rest0.
Let dd := top_then_sample_dist q0 rest0 1.

Definition pick_drawn (s : seq V) (v : V) : R := (s == [:: v])%:R.

Lemma pick_drawn_dist (s : 1.-tuple V) : is_dist (pick_drawn s).
Proof.
case: s => [[|x [|y s]]] // sz; split=> [v|]; first exact: ler0n.
rewrite /pick_drawn /= (bigD1 x) //= eqxx big1 ?addr0 // => v /negbTE.
by rewrite eqseq_cons andbT eq_sym => ->.
Qed.

Lemma pick_drawn_in s v : v \notin s -> pick_drawn s v = 0.
Proof. by rewrite /pick_drawn; case: eqP => // ->; rewrite mem_head. Qed.

Lemma selected_drawn v : selected drafts (pick_sampled pick_drawn) v = q' v.
Proof.
rewrite selected_top sum_tuple1 (bigD1 v) //= big1 => [|x /negbTE xv].
  by rewrite /pick_drawn /iid big_seq1 /= [[:: v] == _]eqxx mulr1 addr0.
by rewrite /pick_drawn eqseq_cons xv mulr0.
Qed.

Lemma greedyE s v : greedy s v = top_verifier q top p pick_drawn s v.
Proof.
have dropE : exists x, drop c s = [:: x].
  have : size (drop c s) == 1%N by rewrite size_drop size_tuple addKn.
  by case: (drop c s) => [|x [|y t]] // _; exists x.
have [x e] := dropE; rewrite /greedy /top_verifier /select_then_speculate /pick_sampled e.
rewrite (bigD1 x) //= /pick_drawn eqxx mul1r big1 ?addr0 => [|u /negbTE ux].
  have rm : residual_mass p (selected drafts (pick_sampled pick_drawn)) = residual_mass p q'.
    by apply: eq_bigr => j _; rewrite selected_drawn.
  by rewrite /accept_or /accept /residual rm !selected_drawn.
by rewrite eqseq_cons andbT eq_sym ux mul0r.
Qed.

(** Greedy is lossless, accepts with P(Top) + sum over the rest of min(p, q'), and
    no lossless verifier of these drafts accepts more. *)
Theorem greedy_optimal :
  [/\ lossless drafts p greedy,
      acceptance drafts greedy = \sum_(i in top) p i + \sum_(i | i \notin top) Num.min (q' i) (p i)
    & acceptance drafts greedy = optimal_acceptance drafts p].
Proof.
have dpick := pick_drawn_dist; have pin := pick_drawn_in; have [p0 p1] := dp.
have lk : lossless drafts p greedy.
  have [v l] := top_lossless q0 rest0 dp dpick; split=> [s|i].
    have [k0 k1] := v s; split=> [i|]; first by rewrite greedyE.
    by rewrite -k1; apply: eq_bigr => i _; rewrite greedyE.
  by rewrite -(l i); apply: eq_bigr => s _; rewrite greedyE.
have aE : acceptance drafts greedy = acceptance drafts (top_verifier q top p pick_drawn).
  by apply: eq_bigr => s _; congr (_ * _); apply: eq_bigr => i _; rewrite greedyE.
have ge := top_acceptance_ge q0 rest0 dp dpick pin; rewrite -aE in ge.
have topE : \sum_(i in top) p i = mass p (top_set top) by apply: eq_bigl => i; rewrite inE.
pose H := top_set top :|: [set i | p i < q' i].
have meet : \sum_(i in top) p i + \sum_(i | i \notin top) Num.min (q' i) (p i)
          = 1 + mass p H - qmass drafts H.
  rewrite topE mass_top qmass_top expr1 -(proj2 dr).
  have -> : \sum_(i | i \notin top) Num.min (q' i) (p i)
          = \sum_i q' i + mass (off_top top p) [set i | p i < q' i] - mass q' [set i | p i < q' i].
    rewrite (sum_off_top p0) => [|v]; last exact: rest_top.
    rewrite /mass !(big_mkcond (fun i => i \in _)) -big_split -sumrB /=.
    apply: eq_bigr => i _; rewrite inE /off_top; case it: (i \in top).
      by rewrite rest_top // ltNge p0 /= minxx addr0 subr0.
    by case: (ltP (p i) (q' i)) => _; rewrite ?addr0 ?subr0 // addrAC subrr add0r.
  by ring.
have ge' : 1 + mass p H - qmass drafts H <= acceptance drafts greedy.
  rewrite -meet; apply: le_trans ge; rewrite topE ler_add2l le_eqVlt; apply/orP; left.
  by apply/eqP; apply: eq_bigr => i _; rewrite selected_drawn.
split=> //; last exact: (optimal_acceptance_meet dd dp lk ge').
by apply/eqP; rewrite eq_le meet ge' andbT; apply: acceptance_bound.
Qed.

End Greedy.

(** ** Deterministic drafts: naive is optimal *)
Section Deterministic.
Variables (R : realFieldType) (V : finType) (n : nat) (p : V -> R) (top : n.-tuple V).

Definition deterministic (s : n.-tuple V) : R := (s == top)%:R.

Lemma sum_deterministic (F : n.-tuple V -> R) : \sum_s deterministic s * F s = F top.
Proof.
rewrite (bigD1 top) //= /deterministic eqxx mul1r big1 ?addr0 // => s /negbTE ->.
by rewrite mul0r.
Qed.

(** alpha* = P(Top), reached by the naive verifier. *)
Theorem deterministic_optimal : is_dist p ->
  acceptance deterministic (naive p (n := n)) = \sum_(i in top) p i /\
  acceptance deterministic (naive p (n := n)) = optimal_acceptance deterministic p.
Proof.
move=> dp; have [p0 _] := dp.
have dd : is_dist deterministic.
  split=> [s|]; first exact: ler0n.
  by rewrite -[RHS](sum_deterministic (fun _ => 1)); apply: eq_bigr => s _; rewrite mulr1.
have ae : acceptance deterministic (naive p (n := n)) = \sum_(i in top) p i.
  exact: sum_deterministic.
split=> //; apply: (optimal_acceptance_meet dd dp (H := [set i in top])).
  exact: naive_lossless.
rewrite ae; have -> : qmass deterministic [set i in top] = 1.
  have := sum_deterministic (fun s => (all (mem [set i in top]) s)%:R).
  have -> : all (mem [set i in top]) top by apply/allP => v vt; rewrite /= inE.
  by rewrite qmassE => e; rewrite -[RHS]e; apply: eq_bigr => s _; case: ifP; rewrite ?mulr1 ?mulr0.
rewrite addrAC subrr add0r le_eqVlt; apply/orP; left; apply/eqP.
by apply: eq_bigl => i; rewrite inE.
Qed.

End Deterministic.
