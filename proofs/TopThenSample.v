(** * Fixed tokens, then i.i.d. draws from the rest (theory, sections 2 and 4).

    The family of the greedy sampler ([1], sec. 5; one draw) and of sampling with
    replacement (no fixed token).  The convex-minorant verifier is optimal for all
    of it. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions Duality QConvex WithReplacement SingleDraft CanonicalDecomposition ConvexMinorant.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section TopThenSample.
Variables (R : realFieldType) (V : finType) (c : nat) (q : V -> R) (top : c.-tuple V).
Implicit Types (p : V -> R) (H : {set V}).

(** q renormalised on the tokens outside [top]. *)
Definition rest : V -> R :=
  fun i => if i \in top then 0 else q i / \sum_(v | v \notin top) q v.

(** The drafts are [top], then [m] i.i.d. draws from the rest. *)
Definition top_then_sample m (s : (c + m).-tuple V) : R :=
  if take c s == top then \prod_(v <- drop c s) rest v else 0.

Lemma sum_fixed (t : seq V) m (F : seq V -> R) :
  \sum_(s : (size t + m).-tuple V) (if take (size t) s == t then F (drop (size t) s) else 0)
  = \sum_(s : m.-tuple V) F s.
Proof.
elim: t F => [|x t IH] F /=; first by apply: eq_bigr => s _; rewrite take0 drop0 eqxx.
rewrite sum_tuple_cons /= (bigD1 x) //= [X in _ + X]big1 ?addr0 => [|v /negbTE vx].
  by rewrite -IH; apply: eq_bigr => s _; rewrite eqseq_cons eqxx.
by rewrite big1 // => s _; rewrite eqseq_cons vx.
Qed.

Lemma sum_top m (F : seq V -> R) :
  \sum_(s : (c + m).-tuple V) (if take c s == top then F (drop c s) else 0)
  = \sum_(s : m.-tuple V) F s.
Proof. by have := @sum_fixed top m F; rewrite size_tuple. Qed.

Lemma top_cat m (s : (c + m).-tuple V) : take c s == top -> s = top ++ drop c s :> seq V.
Proof. by move=> /eqP <-; rewrite cat_take_drop. Qed.

Lemma rest_top i : i \in top -> rest i = 0.
Proof. by rewrite /rest => ->. Qed.

(** Q(H) is 0 unless the fixed tokens lie in H, else q'(H)^m. *)
Theorem qmass_top_then_sample m H :
  qmass (top_then_sample (m := m)) H = if all (mem H) top then mass rest H ^+ m else 0.
Proof.
rewrite qmassE -[mass rest H ^+ m]qmass_iid qmassE.
rewrite (eq_bigr (fun s : (c + m).-tuple V => if take c s == top then
   (if all (mem H) top && all (mem H) (drop c s) then \prod_(v <- drop c s) rest v else 0) else 0)).
  rewrite (sum_top m (fun s => if all (mem H) top && all (mem H) s then \prod_(v <- s) rest v else 0)).
  by case: (all _ top); [apply: eq_bigr | rewrite big1].
move=> s _; rewrite /top_then_sample; case: (boolP (take c s == top)) => [/top_cat e|_].
  by rewrite {1}e all_cat.
by rewrite if_same.
Qed.

Hypotheses (q0 : forall v, 0 <= q v) (rest0 : 0 < \sum_(v | v \notin top) q v).

Lemma rest_dist : is_dist rest.
Proof.
split=> [i|]; rewrite /rest; first by case: ifP => // _; rewrite divr_ge0 // ltW.
rewrite (eq_bigr (fun i => if i \notin top then q i / \sum_(v | v \notin top) q v else 0)); last first.
  by move=> i _; case: (i \in top).
by rewrite -big_mkcond -mulr_suml divff // lt0r_neq0.
Qed.

Lemma top_then_sample_dist m : is_dist (top_then_sample (m := m)).
Proof.
have [r0 r1] := rest_dist; split=> [s|].
  by rewrite /top_then_sample; case: ifP => // _; apply: prodr_ge0.
rewrite -qmassT qmass_top_then_sample massT r1 expr1n.
by case: allP => // h; case: h => v _; rewrite /= inE.
Qed.

Definition top_set : {set V} := [set v in top].

(** p outside the fixed tokens: its mass is below 1. *)
Definition off_top p : V -> R := fun v => if v \in top then 0 else p v.

Section Verifier.
Variables (p : V -> R) (m : nat) (pick : seq V -> V -> R).
Hypotheses (dp : is_dist p).
Hypotheses (dpick : forall s : m.-tuple V, is_dist (pick s))
  (pick_in : forall s v, v \notin s -> pick s v = 0).

(** Select among the sampled drafts, then speculate; the fixed tokens are left to
    the residual, where they count as accepted. *)
Definition pick_sampled (s : (c + m).-tuple V) : V -> R := pick (drop c s).
Definition top_verifier : (c + m).-tuple V -> V -> R :=
  select_then_speculate (top_then_sample (m := m)) p pick_sampled.

Lemma drop_dist (s : (c + m).-tuple V) : is_dist (pick_sampled s).
Proof.
have sz : size (drop c s) == m by rewrite size_drop size_tuple addKn.
exact: dpick (Tuple sz).
Qed.

Lemma selected_top v : selected (top_then_sample (m := m)) pick_sampled v
  = \sum_(s : m.-tuple V) iid rest s * pick s v.
Proof.
rewrite /selected /iid -(sum_top m (fun s => (\prod_(v <- s) rest v) * pick s v)).
apply: eq_bigr => s _; rewrite /top_then_sample /pick_sampled.
by case: ifP => _; rewrite ?mul0r.
Qed.

Lemma selected_top0 v : v \in top -> selected (top_then_sample (m := m)) pick_sampled v = 0.
Proof.
move=> vt; rewrite selected_top big1 // => s _.
have [vs|vs] := boolP (v \in s); last by rewrite pick_in ?mulr0.
have -> : iid rest s = 0; last by rewrite mul0r.
rewrite /iid; apply/eqP; rewrite prodf_seq_eq0; apply/hasP; exists v => //=.
by rewrite rest_top.
Qed.

Lemma top_lossless : lossless (top_then_sample (m := m)) p top_verifier.
Proof. exact: select_lossless (top_then_sample_dist m) dp drop_dist. Qed.

Lemma top_acceptance_ge :
  mass p top_set + \sum_(i | i \notin top) Num.min (selected (top_then_sample (m := m)) pick_sampled i) (p i)
  <= acceptance (top_then_sample (m := m)) top_verifier.
Proof.
have := @select_acceptance_fixed R V _ _ p _ (top_then_sample_dist m) dp drop_dist _ top_set.
rewrite (eq_bigl (fun i => i \notin top)) => [|i]; last by rewrite inE.
apply=> [s v vs|s i nz|i]; last by rewrite inE; apply: selected_top0.
  by apply: pick_in; apply: contra vs => /mem_drop.
rewrite inE => it; move: nz; rewrite /top_then_sample.
case: ifP => [/top_cat e _|]; last by rewrite eqxx.
by suff: i \in tval s; [|rewrite e mem_cat it].
Qed.

End Verifier.

Lemma mass_top p H : mass p (top_set :|: H) = mass p top_set + mass (off_top p) H.
Proof.
rewrite /mass !(big_mkcond (fun v => v \in _)) -big_split /=; apply: eq_bigr => i _.
by rewrite /off_top !inE; case: (i \in top); rewrite /= ?if_same ?addr0 ?add0r.
Qed.

Lemma qmass_top m H : qmass (top_then_sample (m := m)) (top_set :|: H) = mass rest H ^+ m.
Proof.
rewrite qmass_top_then_sample ifT; last by apply/allP => v vt; rewrite /= !inE vt.
congr (_ ^+ _); rewrite /mass !(big_mkcond (fun v => v \in _)); apply: eq_bigr => i _.
by rewrite !inE; case it: (i \in top) => //=; rewrite rest_top ?if_same.
Qed.

Lemma sum_off_top p (t : V -> R) : (forall v, 0 <= p v) -> (forall v, v \in top -> t v = 0) ->
  \sum_(i | i \notin top) Num.min (t i) (p i) = \sum_i Num.min (t i) (off_top p i).
Proof.
move=> p0 t0; rewrite [LHS]big_mkcond; apply: eq_bigr => i _; rewrite /off_top.
by case it: (i \in top) => //=; rewrite t0 // minxx.
Qed.

(** The convex-minorant verifier for fixed tokens then n+1 i.i.d. draws: select among
    the draws by the merging process of target and draft outside the fixed tokens. *)
Definition top_best p n : nat :=
  best_prefix (ratio_order (off_top p) rest) (fun H => mass (off_top p) H - mass rest H ^+ n.+1).
Definition top_merges p n : seq (R * seq R) :=
  minorant_merges n (off_top p) rest (ratio_order (off_top p) rest) (top_best p n).
Definition top_convex_minorant p n : (c + n.+1).-tuple V -> V -> R :=
  top_verifier p (m := n.+1) (minorant_pick rest (ratio_order (off_top p) rest) (top_merges p n)).

(** It is lossless and its acceptance is the minimum over all H of 1 + P(H) - Q(H). *)
Theorem top_then_sample_optimal p n : is_dist p ->
  lossless (top_then_sample (m := n.+1)) p (top_convex_minorant p (n := n)) /\
  acceptance (top_then_sample (m := n.+1)) (top_convex_minorant p (n := n))
  = optimal_acceptance (top_then_sample (m := n.+1)) p.
Proof.
move=> dp; have [p0 _] := dp; have dr := rest_dist.
have p0' v : 0 <= off_top p v by rewrite /off_top; case: ifP.
have [ue eE se] := ratio_orderP (off_top p) rest.
have [km kmin] := best_prefixP (ratio_order (off_top p) rest)
  (fun H => mass (off_top p) H - mass rest H ^+ n.+1).
have sel := convex_minorant_selection p0' dr ue eE se km kmin.
have ds := minorant_pick_dist p0' dr ue eE se km kmin.
have pin := @minorant_pick_in R V rest (ratio_order (off_top p) rest) (top_merges p n).
have lk := top_lossless dp ds.
split=> //.
apply: (optimal_acceptance_meet (top_then_sample_dist n.+1) dp
  (H := top_set :|: prefix (ratio_order (off_top p) rest) (top_best p n)) lk).
rewrite mass_top qmass_top.
have := top_acceptance_ge dp ds pin; apply: le_trans.
rewrite sum_off_top //; last by move=> v; apply: selected_top0 pin _ .
rewrite (eq_bigr (fun v => Num.min (target n (off_top p) rest (ratio_order (off_top p) rest) (top_best p n) v)
                                   (off_top p v))) => [|v _]; last by rewrite selected_top -sel.
rewrite (target_meets p0' dr ue eE se km kmin) le_eqVlt; apply/orP; left.
by apply/eqP; rewrite /top_best; ring.
Qed.

End TopThenSample.
