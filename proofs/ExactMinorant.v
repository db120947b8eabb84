(** * The convex-minorant verifier as a program on lists, equal to the verifier of
    [ConvexMinorant.iid_optimal]. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions QConvex WithReplacement SingleDraft CanonicalDecomposition Merging BlockSelection ClippedTarget ConvexMinorant Exact.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section ExactMinorant.
Variables (R : realFieldType) (v n : nat).
Notation V := ('I_v).
Implicit Types (p q a b : seq R) (t e : seq nat).

(** ** The program; [n] is the number of drafts minus 1 *)

Definition exact_ratio_le p q (i j : nat) : bool :=
  (nth 0 q j == 0) || (nth 0 q i != 0) && (nth 0 p i / nth 0 q i <= nth 0 p j / nth 0 q j).
Definition exact_order p q : seq nat :=
  sort (exact_ratio_le p q) [seq i <- iota 0 v | nth 0 q i != 0].

Definition upto a j : R := total (take j a).

Definition exact_best a b : nat :=
  first_min (size b) (fun j => upto a j - upto b j ^+ n.+1).

Definition exact_clipped a b (k : nat) : seq R :=
  let gap := upto b k ^+ n.+1 - upto a k in
  let lower j := (upto a j + gap) / upto b j in
  let upper j := (1 - upto a j - gap) / (1 - upto b j) in
  let kappa := foldr Num.min (lower 1%N) [seq lower i | i <- iota 1 k] in
  let tau := foldr Num.max (upper k) [seq upper i | i <- iota k (size b - k)] in
  mkseq (fun i => if (i < k)%N then Num.max (nth 0 a i) (kappa * nth 0 b i)
                  else Num.min (nth 0 a i) (tau * nth 0 b i)) (size b).

Definition exact_points b : seq R := [seq upto b j.+1 | j <- iota 0 (size b)].
Definition exact_curve b (c : seq R) (x : R) : R :=
  total [seq (if upto b i.+1 <= x then nth 0 c i else 0) | i <- iota 0 (size b)].
Definition exact_merges b c : seq (R * seq R) :=
  power_merges n.+1 (exact_curve b c) (exact_points b).

Definition exact_block_pick (blk : nat -> nat) t (i : nat) : R :=
  if all (fun y => blk y <= blk i)%N t
  then (count_mem i t)%:R / (count (fun y => blk y == blk i) t)%:R else 0.
Definition exact_pick b e (ws : seq (R * seq R)) t (i : nat) : R :=
  total [seq w.1 * exact_block_pick (fun y => count (fun x => x < upto b (index y e).+1) w.2) t i | w <- ws].

Definition exact_convex_minorant p q t : seq R :=
  let e := exact_order p q in
  let a := [seq nth 0 p i | i <- e] in
  let b := [seq nth 0 q i | i <- e] in
  let c := exact_clipped a b (exact_best a b) in
  let ws := exact_merges b c in
  let law_t := mkseq (fun i => if i \in e then nth 0 c (index i e) else 0) v in
  let res := exact_residual v p law_t in
  let picked := mkseq (exact_pick b e ws t) v in
  mkseq (fun j => token_sum v (fun i =>
    nth 0 picked i * nth 0 (exact_accept_or v (exact_accept p law_t i) res i) j)) v.

(** ** It is the verifier *)

Lemma uptoE a j : prefix_sum (nth 0 a) j = upto a j.
Proof.
rewrite /prefix_sum /upto; elim: a j => [|x a IH] [|j] /=; rewrite ?big_ord0 //.
  by rewrite big1 // => i _; rewrite nth_nil.
by rewrite big_ord_recl /= IH.
Qed.

Lemma foldr_min (x0 : R) l : foldr Num.min x0 l = \big[Num.min/x0]_(x <- l) x.
Proof. by elim: l => [|x l IH]; rewrite ?big_nil // big_cons -IH. Qed.

Lemma foldr_max (x0 : R) l : foldr Num.max x0 l = \big[Num.max/x0]_(x <- l) x.
Proof. by elim: l => [|x l IH]; rewrite ?big_nil // big_cons -IH. Qed.

Lemma exact_clippedE a b k i : (i < size b)%N ->
  clipped n.+1 (size b) (nth 0 a) (nth 0 b) k i = nth 0 (exact_clipped a b k) i.
Proof.
move=> ib; rewrite nth_mkseq // /clipped foldr_min foldr_max !big_map.
have -> : kappa n.+1 (nth 0 a) (nth 0 b) k
    = \big[Num.min/(upto a 1 + (upto b k ^+ n.+1 - upto a k)) / upto b 1]_(j <- iota 1 k)
        ((upto a j + (upto b k ^+ n.+1 - upto a k)) / upto b j).
  rewrite /kappa /index_iota subSS subn0 /lower_ratio /gap !uptoE.
  by apply: eq_bigr => j _; rewrite !uptoE.
have -> : tau n.+1 (size b) (nth 0 a) (nth 0 b) k
    = \big[Num.max/(1 - upto a k - (upto b k ^+ n.+1 - upto a k)) / (1 - upto b k)]_(j <- iota k (size b - k))
        ((1 - upto a j - (upto b k ^+ n.+1 - upto a k)) / (1 - upto b j)).
  rewrite /tau /index_iota /upper_ratio /gap !uptoE.
  by apply: eq_bigr => j _; rewrite !uptoE.
by [].
Qed.

Lemma slope_ext (F G : R -> R) x y : F =1 G -> slope F x y = slope G x y.
Proof. by move=> e; rewrite /slope !e. Qed.

Lemma first_death_ext u (F G : R -> R) r x L : F =1 G -> first_death u F r x L = first_death u G r x L.
Proof.
move=> e; elim: L x => // j [|y L] IH x //.
by rewrite !first_death_cons IH !(slope_ext _ _ e).
Qed.

Lemma merges_ext u m (F G : R -> R) r x L : F =1 G -> merges u m F r x L = merges u m G r x L.
Proof.
elim: m F G r L => // m IH F G r L e /=; rewrite (first_death_ext u r x L e).
case: (first_death _ _ _ _ _) => s [L'|] //; congr (_ :: _).
by apply: IH => y; rewrite e.
Qed.

Lemma first_min_ext m (g1 g2 : nat -> R) : (forall j, (j <= m)%N -> g1 j = g2 j) ->
  first_min m g1 = first_min m g2.
Proof.
have le j : j \in iota 0 m.+1 -> (j <= m)%N.
  by rewrite mem_iota => /andP[_]; rewrite add0n ltnS.
move=> e; apply: eq_in_find => j /le jm; apply: eq_in_all => l /le lm.
by rewrite !e.
Qed.

Lemma residual_ext (p q1 q2 : V -> R) : q1 =1 q2 -> residual p q1 =1 residual p q2.
Proof.
move=> e j; rewrite /residual.
have -> : residual_mass p q1 = residual_mass p q2 by apply: eq_bigr => k _; rewrite e.
by rewrite e.
Qed.

Section Instance.
Variables p q : seq R.
Hypotheses (dp : is_dist (@law R v p)) (dq : is_dist (@law R v q)).
Notation P := (@law R v p).
Notation Q := (@law R v q).
Notation E := (ratio_order P Q).
Notation e := (exact_order p q).
Notation a := [seq nth 0 p i | i <- e].
Notation b := [seq nth 0 q i | i <- e].

Lemma exact_orderE : map val E = e.
Proof.
rewrite /ratio_order /exact_order.
have -> : [seq i <- iota 0 v | nth 0 q i != 0] = map val (enum (support Q)).
  rewrite /enum_mem -enumT -val_enum_ord filter_map; congr map.
  by apply: eq_filter => i; rewrite /= !inE.
by rewrite sort_map.
Qed.

Lemma exact_a : map P E = a.
Proof. by rewrite -exact_orderE -map_comp. Qed.

Lemma exact_b : map Q E = b.
Proof. by rewrite -exact_orderE -map_comp. Qed.

Lemma size_E : size E = size b.
Proof. by rewrite -exact_b size_map. Qed.

Lemma index_E (i : V) : index (val i) e = index i E.
Proof. by rewrite -exact_orderE index_map //; apply: val_inj. Qed.

Lemma mem_E (i : V) : (val i \in e) = (i \in E).
Proof. by rewrite -exact_orderE mem_map //; apply: val_inj. Qed.

Let OP := ratio_orderP P Q.
Let ue : uniq E. Proof. by case: OP. Qed.
Let eE : forall i, (i \in E) = (Q i != 0). Proof. by case: OP. Qed.
Let se : sorted (ratio_le P Q) E. Proof. by case: OP. Qed.
Let p0 i : 0 <= P i. Proof. by case: dp. Qed.

Lemma exact_bestE : iid_best P Q n = exact_best a b.
Proof.
rewrite /iid_best /best_prefix /exact_best size_E; apply: first_min_ext => j jb.
have jE : (j <= size E)%N by rewrite size_E.
by rewrite !(mass_prefix ue) // exact_a exact_b !uptoE.
Qed.

Notation k := (exact_best a b).
Notation c := (exact_clipped a b k).

Lemma exact_targetE i : target n P Q E (iid_best P Q n) i
  = law (mkseq (fun i => if i \in e then nth 0 c (index i e) else 0) v) i.
Proof.
rewrite /law nth_mkseq // mem_E index_E /target; case: ifP => // iE.
by rewrite exact_bestE exact_a exact_b size_E exact_clippedE // -size_E index_mem.
Qed.

Lemma exact_mergesE : minorant_merges n P Q E (iid_best P Q n) = exact_merges b c.
Proof.
rewrite /minorant_merges /exact_merges.
have -> : points Q E = exact_points b.
  rewrite /points /exact_points size_E exact_b; apply: eq_map => j.
  exact: uptoE.
rewrite /power_merges; apply: merges_ext => x.
rewrite -[exact_curve b c x]/(token_sum (size b) (fun i => if upto b i.+1 <= x then nth 0 c i else 0)).
rewrite -token_sumE /target_curve big_mkcond /= exact_bestE exact_a exact_b size_E.
by apply: eq_bigr => i _; rewrite uptoE exact_clippedE.
Qed.

Lemma cumulative_upto i : cumulative Q E i = upto b (index i E).+1.
Proof.
have [iE|iE] := boolP (i \in E).
  by rewrite (cumulativeE Q ue) // exact_b uptoE.
rewrite /cumulative (memNindex iE) (eq_bigl xpredT) => [|y]; last by rewrite index_size.
rewrite (proj2 dq) /upto take_oversize -?size_E // -[b]take_size -/(upto b _) -uptoE.
by have := @X_last R _ Q E dq ue eE; rewrite exact_b size_E.
Qed.

Lemma exact_block_pickE (B1 : V -> nat) (B2 : nat -> nat) (s : seq V) i :
  (forall j, B1 j = B2 (val j)) -> block_pick R B1 s i = exact_block_pick B2 (map val s) (val i).
Proof.
move=> eB; rewrite /block_pick /exact_block_pick all_map !count_map.
rewrite (eq_all (a2 := preim val (fun y => B2 y <= B2 (val i))%N)) => [|j]; last by rewrite /= !eB.
case: ifP => // _; congr (_%:R / _%:R); apply: eq_count => j; rewrite /= ?eB //.
Qed.

Theorem exact_convex_minorantE (s : n.+1.-tuple V) j :
  iid_verifier P Q s j = law (exact_convex_minorant p q (map val s)) j.
Proof.
have [km kmin] := best_prefixP E (fun H => mass P H - mass Q H ^+ n.+1).
have sel i := convex_minorant_selection p0 dq ue eE se km kmin i.
have tE i : selected (iid Q (n := n.+1)) (fun s => minorant_pick Q E (minorant_merges n P Q E (iid_best P Q n)) s) i
  = law (mkseq (fun i => if i \in e then nth 0 c (index i e) else 0) v) i.
  by rewrite sel exact_targetE.
rewrite /law nth_mkseq // /iid_verifier /convex_minorant /select_then_speculate -token_sumE.
apply: eq_bigr => i _; rewrite !nth_mkseq //.
congr (_ * _).
  rewrite /minorant_pick exact_mergesE /exact_pick totalE big_map.
  apply: eq_bigr => w _; congr (_ * _); apply: exact_block_pickE => y.
  by apply: eq_count => x; rewrite index_E cumulative_upto.
rewrite /accept_or (residual_ext _ tE) exact_residualE /accept tE.
  by rewrite /exact_accept.
exact: ltn_ord.
Qed.

End Instance.

End ExactMinorant.
