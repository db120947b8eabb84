(** * Recursive rejection sampling (theory, section 4; [4] with, [5] without replacement).

    The law of the next draft may depend on the drafts already seen, which covers
    both samplers.  Tokens with q = 0 are allowed. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions QConvex WithReplacement WithoutReplacement SingleDraft.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section RecursiveRejection.
Variables (R : realFieldType) (V : finType).
Implicit Types (p q r : V -> R) (qs : seq V -> V -> R) (h s : seq V).

(** Drafts drawn one after the other, the next from [qs h] given the history [h]. *)
Fixpoint sequential qs h s : R :=
  if s is x :: s' then qs h x * sequential qs (rcons h x) s' else 1.

(** Accept the first draft or go on with the residual and the next one. *)
Fixpoint rrs qs h r s : V -> R :=
  if s is x :: s' then
    accept_or (accept r (qs h)) (rrs qs (rcons h x) (residual r (qs h)) s') x
  else r.

(** The acceptance rate by recursion over the history. *)
Fixpoint rrs_rate qs (k : nat) h r : R :=
  if k is k'.+1 then
    \sum_x qs h x * (accept r (qs h) x
                     + (1 - accept r (qs h) x) * rrs_rate qs k' (rcons h x) (residual r (qs h)))
  else 0.

Section General.
Variables (qs : seq V -> V -> R) (good : nat -> seq V -> Prop).
Hypotheses (qs0 : forall h v, 0 <= qs h v)
  (qs_dist : forall k h, good k.+1 h -> is_dist (qs h))
  (qs_good : forall k h v, good k.+1 h -> qs h v != 0 -> good k (rcons h v)).

Lemma rrs_dist h r s : is_dist r -> is_dist (rrs qs h r s).
Proof.
elim: s h r => //= x s IH h r dr; apply: accept_or_dist.
- by apply: accept_ge0; case: dr.
- exact: accept_le1.
- exact/IH/residual_dist.
Qed.

Lemma sequential_ge0 h s : 0 <= sequential qs h s.
Proof. by elim: s h => [|x s IH] h /=; rewrite ?ler01 ?mulr_ge0. Qed.

Lemma sequential_dist k h : good k h -> is_dist (fun s : k.-tuple V => sequential qs h s).
Proof.
move=> gh; split=> [s|]; first exact: sequential_ge0.
elim: k h gh => [|k IH] h gh; first by rewrite sum_tuple0.
rewrite sum_tuple_cons /= -[RHS](proj2 (qs_dist gh)); apply: eq_bigr => x _.
rewrite -mulr_sumr; have [->|nz] := eqVneq (qs h x) 0; first by rewrite mul0r.
by rewrite (IH _ (qs_good gh nz)) mulr1.
Qed.

Lemma rrs_law k h r j : good k h -> is_dist r ->
  \sum_(s : k.-tuple V) sequential qs h s * rrs qs h r s j = r j.
Proof.
elim: k h r => [|k IH] h r gh dr; first by rewrite sum_tuple0 /= mul1r.
have dq := qs_dist gh.
rewrite sum_tuple_cons -[RHS](speculative_law j dr dq); apply: eq_bigr => x _ /=.
have [z|nz] := eqVneq (qs h x) 0.
  by rewrite z mul0r big1 // => s _; rewrite !mul0r.
have [_ total] := sequential_dist (qs_good gh nz).
rewrite /accept_or.
rewrite (eq_bigr (fun s : k.-tuple V => qs h x * (accept r (qs h) x * (x == j)%:R * sequential qs (rcons h x) s
  + (1 - accept r (qs h) x) * (sequential qs (rcons h x) s * rrs qs (rcons h x) (residual r (qs h)) s j)))); last first.
  by move=> s _; ring.
rewrite -mulr_sumr big_split /= -!mulr_sumr total mulr1.
by rewrite (IH _ _ (qs_good gh nz) (residual_dist _ dr)).
Qed.

(** Recursive rejection is lossless. *)
Theorem rrs_lossless n p : good n [::] -> is_dist p ->
  lossless (fun s : n.-tuple V => sequential qs [::] s) p (fun s : n.-tuple V => rrs qs [::] p s).
Proof.
move=> g dp; split=> [s|j]; first exact: rrs_dist.
exact: rrs_law.
Qed.

(* a token without residual mass is never emitted *)
Lemma rrs_zero h r s x : (forall v, 0 <= r v) -> r x = 0 -> rrs qs h r s x = 0.
Proof.
elim: s h r => //= y s IH h r r0 rx.
have res0 : residual r (qs h) x = 0.
  rewrite /residual; case: ifP => // _; rewrite rx sub0r /pos (max_idPr _) ?mul0r //.
  by rewrite oppr_le0.
rewrite /accept_or IH // => [|v].
  rewrite mulr0 addr0; case: eqP => [->|_]; rewrite ?mulr0 //.
  by rewrite /accept rx mul0r (min_idPr _) ?ler01 ?mul0r.
rewrite /residual; case: ifP => // _.
by rewrite divr_ge0 ?pos_ge0 ?residual_mass_ge0.
Qed.

Lemma sum_emitted_cons (K : V -> R) x s : x \notin s ->
  \sum_(i | i \in x :: s) K i = K x + \sum_(i | i \in s) K i.
Proof.
move=> xs; rewrite (bigD1 x) ?mem_head //=; congr (_ + _); apply: eq_bigl => i.
rewrite inE; case: (eqVneq i x) => [->|] /=; last by rewrite andbT.
by rewrite (negbTE xs).
Qed.

(* once x is rejected, whether it counts among the drafts makes no difference *)
Lemma sum_emitted_zero (K : V -> R) x s : K x = 0 ->
  \sum_(i | i \in x :: s) K i = \sum_(i | i \in s) K i.
Proof.
move=> Kx; have [xs|xs] := boolP (x \in s); last by rewrite sum_emitted_cons ?Kx ?add0r.
by apply: eq_bigl => i; rewrite inE; case: eqP => [->|]; rewrite ?xs.
Qed.

Lemma rrs_acceptance_rec k h r : good k h -> is_dist r ->
  \sum_(s : k.-tuple V) sequential qs h s * (\sum_(i | i \in s) rrs qs h r s i) = rrs_rate qs k h r.
Proof.
elim: k h r => [|k IH] h r gh dr.
  by rewrite sum_tuple0 /= big_pred0 ?mulr0.
have dq := qs_dist gh; have [r0 _] := dr; rewrite sum_tuple_cons /=; apply: eq_bigr => x _.
have [z|nz] := eqVneq (qs h x) 0.
  by rewrite z mul0r big1 // => s _; rewrite !mul0r.
have [_ total] := sequential_dist (qs_good gh nz).
rewrite -(IH _ _ (qs_good gh nz) (residual_dist _ dr)).
rewrite (eq_bigr (fun s : k.-tuple V => qs h x * (accept r (qs h) x * sequential qs (rcons h x) s
  + (1 - accept r (qs h) x) * (sequential qs (rcons h x) s
      * \sum_(i | i \in s) rrs qs (rcons h x) (residual r (qs h)) s i)))).
  by rewrite -mulr_sumr big_split /= -!mulr_sumr total mulr1.
move=> s _; rewrite -mulrA; congr (_ * _).
rewrite /accept_or big_split /= -!mulr_sumr.
have -> : \sum_(i | i \in x :: s) (x == i)%:R = 1 :> R.
  rewrite (bigD1 x) ?mem_head //= eqxx big1 ?addr0 // => i /andP[_ /negbTE].
  by rewrite eq_sym => ->.
rewrite mulr1 mulrDr; congr (_ + _); first by rewrite mulrC.
rewrite mulrCA; have := residual_rejected x dr dq.
have [->|a1] := eqVneq (1 - accept r (qs h) x) 0; first by rewrite !mul0r.
move=> /eqP; rewrite !mulf_eq0 (negbTE nz) (negbTE a1) /= => /eqP res0.
rewrite sum_emitted_zero // rrs_zero // => v.
by case: (residual_dist (qs h) dr).
Qed.

Theorem rrs_acceptance n p : good n [::] -> is_dist p ->
  acceptance (fun s : n.-tuple V => sequential qs [::] s) (fun s : n.-tuple V => rrs qs [::] p s)
  = rrs_rate qs n [::] p.
Proof. exact: rrs_acceptance_rec. Qed.

End General.

(** ** With replacement *)

Lemma sequential_iid q n (s : n.-tuple V) h : sequential (fun _ => q) h s = iid q s.
Proof.
rewrite /iid; elim: (tval s) h => [|x t IH] h /=; first by rewrite big_nil.
by rewrite big_cons IH.
Qed.

(** The k-th residual r_1 = p, r_{k+1} = normalise (r_k - q)_+. *)
Definition rrs_residual p q k : V -> R := iter k (fun r => residual r q) p.

Lemma rrs_residual_dist p q k : is_dist p -> is_dist (rrs_residual p q k).
Proof. by move=> dp; elim: k => //= k; apply: residual_dist. Qed.

Lemma rrs_rate_history q n g h r : rrs_rate (fun _ => q) n g r = rrs_rate (fun _ => q) n h r.
Proof.
elim: n g h r => //= n IH g h r; apply: eq_bigr => x _.
by rewrite (IH _ (rcons h x)).
Qed.

Lemma rrs_rate_iid p q n h : is_dist p -> is_dist q ->
  1 - rrs_rate (fun _ => q) n h p
  = \prod_(k < n) (1 - \sum_i Num.min (q i) (rrs_residual p q k i)).
Proof.
move=> + dq; elim: n h p => [|n IH] h p dp; first by rewrite big_ord0 /= subr0.
rewrite big_ord_recl /=; set b := \sum_i Num.min _ _.
have -> : \prod_(i < n) (1 - \sum_v Num.min (q v) (rrs_residual p q (lift ord0 i) v))
        = \prod_(k < n) (1 - \sum_i Num.min (q i) (rrs_residual (residual p q) q k i)).
  by apply: eq_bigr => i _; rewrite /rrs_residual lift0 iterSr.
have rateE g := rrs_rate_history q n g [::] (residual p q).
rewrite -(IH [::] _ (residual_dist q dp)); have [[q0 q1] [p0 _]] := (dq, dp).
rewrite (eq_bigr (fun x => q x * accept p q x * (1 - rrs_rate (fun _ => q) n [::] (residual p q))
   + q x * rrs_rate (fun _ => q) n [::] (residual p q))) => [|x _]; last by rewrite rateE; ring.
rewrite big_split /= -!mulr_suml q1 (eq_bigr (fun x => Num.min (q x) (p x))) => [|x _]; last exact: acceptE.
by rewrite -/b; ring.
Qed.

(** With replacement: lossless, and accepts with 1 - prod_k (1 - sum min(r_k, q)). *)
Theorem rrs_iid_lossless p q n : is_dist p -> is_dist q ->
  lossless (iid q (n := n)) p (fun s : n.-tuple V => rrs (fun _ => q) [::] p s).
Proof.
move=> dp dq; have [q0 _] := dq.
have [v l] := @rrs_lossless (fun _ => q) (fun _ _ => True) (fun _ => q0) (fun _ _ _ => dq) (fun _ _ _ _ _ => I) n p I dp.
split=> // i; rewrite -(l i); apply: eq_bigr => s _.
by rewrite -(sequential_iid _ _ [::]).
Qed.

Theorem rrs_iid_acceptance p q n : is_dist p -> is_dist q ->
  acceptance (iid q (n := n)) (fun s : n.-tuple V => rrs (fun _ => q) [::] p s)
  = 1 - \prod_(k < n) (1 - \sum_i Num.min (q i) (rrs_residual p q k i)).
Proof.
move=> dp dq; have [q0 _] := dq.
rewrite -(rrs_rate_iid n [::] dp dq) opprB addrC subrK.
rewrite -(@rrs_acceptance (fun _ => q) (fun _ _ => True) (fun _ => q0) (fun _ _ _ => dq) (fun _ _ _ _ _ => I) n p I dp).
by apply: eq_bigr => s _; rewrite -(sequential_iid _ _ [::]).
Qed.

(** ** Without replacement *)

(** q without the drafts already seen, renormalised: used in the draw, the test and
    the residual. *)
Definition wor_next q h : V -> R :=
  fun i => if i \in h then 0 else q i / \sum_(v | v \notin h) q v.

Definition left_over q h : {set V} := [set v in support q | v \notin h].

Lemma wor_next_ge0 q h v : (forall v, 0 <= q v) -> 0 <= wor_next q h v.
Proof. by move=> q0; rewrite /wor_next; case: ifP => // _; rewrite divr_ge0 ?sumr_ge0. Qed.

Lemma wor_next_dist q k h : (forall v, 0 <= q v) -> (k < #|left_over q h|)%N ->
  is_dist (wor_next q h).
Proof.
move=> q0 kh; split=> [v|]; first exact: wor_next_ge0.
rewrite /wor_next (eq_bigr (fun i => if i \notin h then q i / \sum_(v | v \notin h) q v else 0)); last first.
  by move=> i _; case: (i \in h).
rewrite -big_mkcond -mulr_suml divff // gt_eqF //.
have [v] : exists v, v \in left_over q h by apply/card_gt0P; apply: leq_ltn_trans kh.
rewrite !inE => /andP[qv vh]; rewrite (bigD1 v) //= ltr_paddr ?sumr_ge0 //.
by rewrite lt_neqAle eq_sym qv q0.
Qed.

Lemma wor_next_good q k h v : (k < #|left_over q h|)%N -> wor_next q h v != 0 ->
  (k <= #|left_over q (rcons h v)|)%N.
Proof.
move=> kh; rewrite /wor_next; case: ifPn => [_|vh]; first by rewrite eqxx.
rewrite mulf_eq0 negb_or => /andP[qv _].
move: kh; rewrite (cardsD1 v) !inE qv vh add1n ltnS => /leq_trans; apply.
by apply/subset_leq_card/subsetP => z; rewrite !inE mem_rcons inE negb_or => /and3P[-> -> ->].
Qed.

Lemma sequential_wor_gen q h s : uniq h ->
  sequential (wor_next q) h s
  = if has (mem h) s then 0 else wor_weight q s (\sum_(v | v \notin h) q v).
Proof.
elim: s h => //= x s IH h uh; rewrite /wor_next.
have [xh|xh] /= := boolP (x \in h); first by rewrite mul0r.
rewrite IH ?rcons_uniq ?xh //.
have -> : has (mem (rcons h x)) s = (x \in s) || has (mem h) s.
  elim: s {IH} => //= y s IH; rewrite IH mem_rcons !inE [x == y]eq_sym.
  by case: (y == x); case: (y \in h); case: (x \in s).
have -> : \sum_(v | v \notin rcons h x) q v = \sum_(v | v \notin h) q v - q x.
  rewrite [in RHS](bigD1 x) //= addrC addKr; apply: eq_bigl => v.
  by rewrite mem_rcons inE negb_or andbC.
by case: (has (mem h) s); case: (x \in s); rewrite /= ?mulr0.
Qed.

Lemma sequential_wor q n (s : n.-tuple V) : sequential (wor_next q) [::] s = wor q s.
Proof.
rewrite sequential_wor_gen // (eq_has (a2 := pred0)) ?has_pred0 //.
Qed.

(** Without replacement: lossless, and accepts at the rate given by recursion over
    the draft sequence. *)
Theorem rrs_wor_lossless p q n : is_dist p -> (forall v, 0 <= q v) -> (n <= #|support q|)%N ->
  lossless (wor q (n := n)) p (fun s : n.-tuple V => rrs (wor_next q) [::] p s).
Proof.
move=> dp q0 nq; pose good k h := (k <= #|left_over q h|)%N.
have g : good n [::].
  by apply: leq_trans nq _; apply/subset_leq_card/subsetP => v; rewrite !inE => ->.
have [v l] := @rrs_lossless (wor_next q) good (fun h v => wor_next_ge0 h v q0)
  (fun k h => @wor_next_dist q k h q0) (fun k h v => @wor_next_good q k h v) n p g dp.
by split=> // i; rewrite -(l i); apply: eq_bigr => s _; rewrite sequential_wor.
Qed.

Theorem rrs_wor_acceptance p q n : is_dist p -> (forall v, 0 <= q v) -> (n <= #|support q|)%N ->
  acceptance (wor q (n := n)) (fun s : n.-tuple V => rrs (wor_next q) [::] p s) = rrs_rate (wor_next q) n [::] p.
Proof.
move=> dp q0 nq; pose good k h := (k <= #|left_over q h|)%N.
have g : good n [::].
  by apply: leq_trans nq _; apply/subset_leq_card/subsetP => v; rewrite !inE => ->.
rewrite -(@rrs_acceptance (wor_next q) good (fun h v => wor_next_ge0 h v q0)
  (fun k h => @wor_next_dist q k h q0) (fun k h v => @wor_next_good q k h v) n p g dp).
by apply: eq_bigr => s _; rewrite sequential_wor.
Qed.

End RecursiveRejection.
