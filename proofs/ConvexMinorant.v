(** * The convex-minorant verifier for i.i.d. drafts (theory, section 4).

    Tokens are taken along a list [e] of the support of q, sorted by p/q increasing.
    The clipped target t is a mixture of block selections, one for each stretch of s
    in [0, 1] on which the lower convex envelope of T - s x^n keeps its vertices, so
    selecting a draft that way and speculating from t to p is lossless and meets the
    bound of section 1. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions Duality QConvex WithReplacement SingleDraft CanonicalDecomposition Merging BlockSelection ClippedTarget.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** ** Blocks cut at vertices select like the interpolation of x^n *)
Section Bridge.
Variables (R : realFieldType).

Lemma sub_in_count (S : eqType) (P1 P2 : pred S) s :
  (forall x, x \in s -> P1 x -> P2 x) -> (count P1 s <= count P2 s)%N.
Proof.
elim: s => //= x s IH h; apply: leq_add.
  by case ax: (P1 x) => //; rewrite (h x) ?mem_head.
by apply: IH => y ys; apply: h; rewrite inE ys orbT.
Qed.

Lemma interp_first (g : R -> R) a L : path <%R a L -> interp g a L a = g a.
Proof. by move=> pL; rewrite interp_vertex // mem_head. Qed.

(* on a step (x - d, x] that contains no vertex, interp is one chord *)
Lemma interp_step (g : R -> R) a L x d : path <%R a L -> 0 < d -> a <= x - d ->
  x <= last a L -> (forall b, b \in L -> b <= x - d \/ x <= b) ->
  exists lo hi, [/\ lo \in a :: L, hi \in L, lo <= x - d /\ x <= hi,
    forall b, b \in a :: L -> b <= lo \/ hi <= b
  & interp g a L x - interp g a L (x - d) = slope g lo hi * d].
Proof.
elim: L a => [|b L IH] a /=.
  move=> _ d0 ax xa _; move: (le_trans xa ax); rewrite -subr_ge0.
  by rewrite (_ : x - d - x = - d) ?oppr_ge0 ?leNgt ?d0 // addrAC subrr add0r.
move=> /andP[ab pL] d0 ax xl nv.
have dx : x - d < x by rewrite ltr_subl_addr ltr_addl.
have [xb|bx] := leP x b.
  exists a, b; split=> //; rewrite ?mem_head //.
    move=> c; rewrite !inE => /or3P[/eqP ->|/eqP ->|cL]; [by left|by right|right].
    by move: pL; rewrite (path_sortedE lt_trans) => /andP[/allP/(_ c cL)/ltW].
  by rewrite (le_trans (ltW dx) xb) /chord; ring.
have bd : b <= x - d.
  by case: (nv b (mem_head _ _)) => // xb; move: bx; rewrite ltNge xb.
have nv' c : c \in L -> c <= x - d \/ x <= c.
  by move=> cL; apply: nv; rewrite inE cL orbT.
have [lo [hi [h1 h2 [h3 h4] h5 h6]]] := IH b pL d0 bd xl nv'.
exists lo, hi; split=> //.
- by rewrite inE h1 orbT.
- by rewrite inE h2 orbT.
- move=> c; rewrite inE => /orP[/eqP ->|/h5 //]; left.
  apply: le_trans (ltW ab) _; move: h1; rewrite inE => /orP[/eqP -> //|h1].
  by move: pL; rewrite (path_sortedE lt_trans) => /andP[/allP/(_ lo h1)/ltW].
- rewrite -h6; case: (leP (x - d) b) => // xb.
  have -> : x - d = b by apply/eqP; rewrite eq_le xb bd.
  by rewrite interp_first // /chord -slopeE.
Qed.

Variables (V : finType) (q : V -> R) (e : seq V).
Hypotheses (q0 : forall v, 0 <= q v) (eE : forall v, (v \in e) = (q v != 0)).

(** The right end of the token's step: cumulative q along the order. *)
Definition cumulative v : R := \sum_(y | (index y e <= index v e)%N) q y.
Notation X := cumulative.

Lemma q_gt0 v : v \in e -> 0 < q v.
Proof. by rewrite eE => h; rewrite lt_neqAle eq_sym h q0. Qed.

Lemma X_mono y v : y \in e -> (X y <= X v) = (index y e <= index v e)%N.
Proof.
move=> ye; apply/idP/idP => [|yv]; last first.
  by apply: ler_sum_subset => [z /leq_trans|z]; [apply|].
apply: contraTT; rewrite -ltnNge -ltNge => vy.
rewrite {2}/X (bigD1 y) //=.
apply: le_lt_trans (_ : \sum_(z | (index z e <= index y e)%N && (z != y)) q z < _).
  apply: ler_sum_subset => [z zv|z //].
  rewrite (leq_trans zv (ltnW vy)) /=; apply: contraTneq vy => <-.
  by rewrite -leqNgt.
by rewrite ltr_addr q_gt0.
Qed.

Lemma X_prev v : v \in e -> X v - q v = \sum_(y | (index y e < index v e)%N) q y.
Proof.
move=> ve; rewrite /X (bigD1 v) //= addrC addKr; apply: eq_bigl => y.
rewrite ltn_neqAle andbC; congr (_ && _); apply/idP/idP; apply: contra => /eqP h.
  have ye : y \in e by rewrite -index_mem h index_mem.
  by apply/eqP; rewrite -(nth_index v ye) h nth_index.
by rewrite h.
Qed.

Lemma X_gt0 v : v \in e -> 0 < X v.
Proof. by move=> ve; rewrite /X (bigD1 v) //= ltr_paddr ?q_gt0 ?sumr_ge0. Qed.

Lemma X_gap y v : y \in e -> v \in e -> X y <= X v - q v \/ X v <= X y.
Proof.
move=> ye ve; case: (leqP (index v e) (index y e)) => h; first by right; rewrite X_mono.
left; rewrite X_prev //; apply: ler_sum_subset => [z zy|z //].
exact: leq_ltn_trans zy h.
Qed.

Lemma eq_sum_support (P1 P2 : pred V) : (forall y, y \in e -> P1 y = P2 y) ->
  \sum_(y | P1 y) q y = \sum_(y | P2 y) q y.
Proof.
move=> h; rewrite big_mkcond [RHS]big_mkcond; apply: eq_bigr => y _.
case ye: (y \in e); first by rewrite h.
by move: ye; rewrite eE => /negbFE/eqP ->; rewrite !if_same.
Qed.

Lemma sumX y0 : y0 \in e -> \sum_(y | X y <= X y0) q y = X y0.
Proof. by move=> h; apply: eq_sum_support => y ye; rewrite X_mono. Qed.

(** The block of a token when the order is cut at the vertices [L]. *)
Definition block (L : seq R) (v : V) : nat := count (fun b => b < X v) L.

Variable L : seq R.
Hypotheses (pL : path <%R 0 L) (lL : last 0 L = 1) (q1 : \sum_v q v = 1)
  (LX : forall b, b \in L -> exists2 v, v \in e & b = X v).

Lemma picked0 (blk : V -> nat) n v : q v = 0 -> picked q blk n v = 0.
Proof.
move=> qv; rewrite /picked big1 // => s _.
have [vs|vs] := boolP (v \in s); last by rewrite block_pick_in ?mulr0.
have -> : iid q s = 0; last by rewrite mul0r.
rewrite /iid; apply/eqP; rewrite prodf_seq_eq0; apply/hasP; exists v => //=.
by rewrite qv.
Qed.

Theorem block_interp n v : v \in e ->
  picked q (block L) n v
  = interp (fun x => x ^+ n) 0 L (X v) - interp (fun x => x ^+ n) 0 L (X v - q v).
Proof.
move=> ve; have qv := q_gt0 ve.
have xd : 0 <= X v - q v by rewrite X_prev // sumr_ge0.
have x1 : X v <= last 0 L by rewrite lL -q1; apply: ler_sum_subset.
have nv b : b \in L -> b <= X v - q v \/ X v <= b.
  by move=> /LX[y ye ->]; apply: X_gap.
have [lo [hi [loL hiL [h1 h2] h3 ->]]] := interp_step (fun x => x ^+ n) pL qv xd x1 nv.
have vd : X v - q v < X v by rewrite ltr_subl_addr ltr_addl.
have lox : lo < X v := le_lt_trans h1 vd.
have below b : b \in L -> (b < X v) = (b <= lo).
  move=> bL; case: (h3 b); first by rewrite inE bL orbT.
    by move=> blo; rewrite blo (le_lt_trans blo lox).
  move=> hib; rewrite ltNge (le_trans h2 hib) /=; apply/esym/negbTE.
  by rewrite -ltNge; apply: lt_le_trans lox (le_trans h2 hib).
have uptoE : mass_upto q (block L) v = hi.
  have [y0 y0e hy0] := LX hiL; rewrite hy0 -sumX //; apply: eq_bigl => y; rewrite -hy0.
  apply/idP/idP => [|yh].
    apply: contraTT; rewrite -ltNge -ltnNge /block => hy.
    rewrite -!size_filter; apply: (@leq_trans (size (hi :: [seq b <- L | b < X v]))) => //.
    apply: uniq_leq_size.
      rewrite /= mem_filter ltNge h2 /= filter_uniq //.
      by move: pL; rewrite lt_path_sortedE => /andP[_ /lt_sorted_uniq].
    move=> b; rewrite inE !mem_filter => /orP[/eqP ->|/andP[bv bL]]; first by rewrite hy.
    by rewrite bL andbT (lt_trans bv) // (le_lt_trans h2 hy).
  rewrite /block; apply: sub_in_count => b bL bX; rewrite below //.
  case: (h3 b) => // [|hib]; first by rewrite inE bL orbT.
  by move: (lt_le_trans bX yh); rewrite ltNge hib.
have belowE : mass_below q (block L) v = lo.
  have st y : y \in e -> (block L y < block L v)%N = (X y <= lo).
    move=> ye; apply/idP/idP => [|ylo].
      apply: contraTT; rewrite -ltNge -leqNgt => loy; rewrite /block.
      by apply: sub_in_count => b bL; rewrite below // => blo; apply: le_lt_trans loy.
    have lo0 : lo \in L.
      move: loL; rewrite inE => /orP[/eqP l0|//].
      by move: ylo; rewrite l0 leNgt X_gt0.
    rewrite /block -!size_filter.
    apply: (@leq_trans (size (lo :: [seq b <- L | b < X y]))) => //.
    apply: uniq_leq_size.
      rewrite /= mem_filter ltNge ylo /= filter_uniq //.
      by move: pL; rewrite lt_path_sortedE => /andP[_ /lt_sorted_uniq].
    move=> b; rewrite inE !mem_filter => /orP[/eqP ->|/andP[bv bL]]; first by rewrite lox.
    by rewrite bL andbT (lt_trans bv) // (le_lt_trans ylo).
  rewrite /mass_below (eq_sum_support st).
  move: loL; rewrite inE => /orP[/eqP ->|/LX[y0 y0e ->]]; last exact: sumX.
  rewrite (eq_sum_support (P2 := pred0)) ?big_pred0 // => y ye.
  by apply/negbTE; rewrite -ltNge X_gt0.
have := block_share q (block L) n v; rewrite uptoE belowE => share.
have lh : hi - lo != 0 by rewrite subr_eq0 gt_eqF // (lt_le_trans lox h2).
by apply: (mulfI lh); rewrite share /slope mulrA [_ * (_ / _)]mulrC divfK // mulrC.
Qed.

End Bridge.

(** ** The selection *)
Section Selection.
Variables (R : realFieldType) (V : finType) (n : nat) (p q : V -> R) (e : seq V) (k : nat).

Definition prefix (j : nat) : {set V} := [set v in take j e].

Notation m := (size e).
Notation a := (nth 0 (map p e)).
Notation b := (nth 0 (map q e)).
Notation X := (prefix_sum b).
Notation t := (clipped n.+1 m a b k).

(** The intermediate target, token by token. *)
Definition target v : R := if v \in e then t (index v e) else 0.

(** The ends of the tokens' steps, and the prefix sums of the target as a function
    of them. *)
Definition points : seq R := [seq X j.+1 | j <- iota 0 m].
Definition target_curve x : R := \sum_(i < m | X i.+1 <= x) t i.

(** [ws] lists (duration, vertices of the envelope) as s goes from 0 to 1.  Draw s,
    cut the order at the vertices, take a draft of the highest block that is hit. *)
Definition minorant_pick (ws : seq (R * seq R)) (s : seq V) (v : V) : R :=
  \sum_(w <- ws) w.1 * block_pick R (block q e w.2) s v.

(** The merging process of the target's curve. *)
Definition minorant_merges : seq (R * seq R) := power_merges n.+1 target_curve points.

(** The convex-minorant verifier. *)
Definition convex_minorant : n.+1.-tuple V -> V -> R :=
  select_then_speculate (iid q (n := n.+1)) p (fun s => minorant_pick minorant_merges s).

(* p need not have mass 1: it is the target outside the fixed drafts *)
Hypotheses (p0 : forall v, 0 <= p v) (dq : is_dist q).
Hypotheses (ue : uniq e) (eE : forall v, (v \in e) = (q v != 0)) (se : sorted (ratio_le p q) e).
Hypotheses (km : (k <= m)%N)
  (kmin : forall j, (j <= m)%N -> mass p (prefix k) - mass q (prefix k) ^+ n.+1
                                  <= mass p (prefix j) - mass q (prefix j) ^+ n.+1).

Let q0 v : 0 <= q v. Proof. by case: dq. Qed.

Lemma some_token i : (i < m)%N -> exists v, v \in e.
Proof. by case: (e) => // x e' _; exists x; rewrite mem_head. Qed.

Lemma mem_prefix j v : (j <= m)%N -> (v \in prefix j) = (index v e < j)%N.
Proof.
move=> jm; rewrite inE; have [ve|ve] := boolP (v \in e); first by rewrite in_take.
rewrite (memNindex ve) ltnNge jm; apply/negbTE; apply: contra ve; exact: mem_take.
Qed.

Lemma mass_prefix (f : V -> R) j : (j <= m)%N -> mass f (prefix j) = prefix_sum (nth 0 (map f e)) j.
Proof.
elim: j => [_|j IH jm].
  by rewrite prefix_sum0 /mass big_pred0 // => v; rewrite inE take0.
rewrite prefix_sumS -(IH (ltnW jm)).
have [x0 _] := some_token jm.
have nj : nth x0 e j \notin prefix j by rewrite (mem_prefix _ (ltnW jm)) index_uniq // ltnn.
rewrite (nth_map x0) // addrC -massU1 //; congr (mass f _).
by apply/setP => v; rewrite !inE (take_nth x0) // mem_rcons inE.
Qed.

Lemma cumulativeE v : v \in e -> cumulative q e v = X (index v e).+1.
Proof.
move=> ve; rewrite -mass_prefix ?index_mem //; apply: eq_bigl => y.
by rewrite mem_prefix ?index_mem // ltnS.
Qed.

Lemma nth_p v : v \in e -> a (index v e) = p v.
Proof. by move=> ve; rewrite (nth_map v) ?index_mem // nth_index. Qed.

Lemma nth_q v : v \in e -> b (index v e) = q v.
Proof. by move=> ve; rewrite (nth_map v) ?index_mem // nth_index. Qed.

Lemma a_ge0 i : 0 <= a i.
Proof.
have [im|im] := ltnP i m; last by rewrite nth_default ?size_map.
by case: (e) im => // x e' im; rewrite (nth_map x).
Qed.

Lemma b_gt0 i : (i < m)%N -> 0 < b i.
Proof.
move=> im; have [x0 _] := some_token im.
by rewrite (nth_map x0) // (q_gt0 q0 eE) // mem_nth.
Qed.

Lemma ab_ratio i : (i.+1 < m)%N -> a i * b i.+1 <= a i.+1 * b i.
Proof.
move=> im; have [x0 _] := some_token im.
have := b_gt0 im; have := b_gt0 (ltnW im).
have := sorted_ltn_nth (@ratio_le_trans R V p q) x0 se i i.+1 (ltnW im) im (ltnSn i).
rewrite !(nth_map x0 0) ?(ltnW im) // /ratio_le => h qi qi1; move: h.
rewrite (gt_eqF qi) (gt_eqF qi1) /= ler_cross // mulrC => h.
by rewrite [X in _ <= X]mulrC.
Qed.

Lemma sum_support (f : V -> R) : (forall v, v \notin e -> f v = 0) ->
  \sum_v f v = \sum_(i < m) nth 0 (map f e) i.
Proof.
move=> f0; rewrite -[RHS]/(prefix_sum _ m) -mass_prefix // /mass [RHS]big_mkcond /=.
apply: eq_bigr => v _; rewrite mem_prefix // index_mem.
by case: ifPn => // /f0.
Qed.

Lemma X_last : X m = 1.
Proof.
case: dq => _ <-; rewrite (sum_support (f := q)) // => v; rewrite eE negbK.
by move/eqP.
Qed.

Lemma kmin_sum j : (j <= m)%N -> prefix_sum a k - X k ^+ n.+1 <= prefix_sum a j - X j ^+ n.+1.
Proof. by move=> jm; rewrite -!mass_prefix //; apply: kmin. Qed.

Let ct := clipped_target (ltn0Sn n) km a_ge0 b_gt0 ab_ratio X_last kmin_sum.

Lemma target_curveE j : (j <= m)%N -> target_curve (X j) = prefix_sum t j.
Proof.
move=> jm; rewrite /target_curve [RHS](big_ord_widen _ t jm).
apply: eq_bigl => i /=.
have [ij|ji] := ltnP i j; first by rewrite (X_le b_gt0).
by apply/negbTE; rewrite -ltNge (X_lt b_gt0) // ltn_ord.
Qed.

Lemma points_path l i : (i + l <= m)%N -> path <%R (X i) [seq X j.+1 | j <- iota i l].
Proof.
elim: l i => //= l IH i; rewrite -addSnnS => im.
by rewrite (X_ltS b_gt0) ?IH // (leq_trans _ im) // leq_addr.
Qed.

Lemma points_last l i : last (X i) [seq X j.+1 | j <- iota i l] = X (i + l).
Proof. by elim: l i => [|l IH] i /=; rewrite ?addn0 // IH addSnnS. Qed.

Lemma points_slopes l i : (i + l <= m)%N ->
  slopes target_curve (X i) [seq X j.+1 | j <- iota i l] = [seq t j / b j | j <- iota i l].
Proof.
elim: l i => //= l IH i; rewrite -addSnnS => im; rewrite IH //; congr (_ :: _).
have im' : (i < m)%N by rewrite (leq_trans _ im) // leq_addr.
rewrite /slope !target_curveE ?(ltnW im') // !prefix_sumS.
by rewrite ![_ + _ - _]addrC !addKr.
Qed.

Lemma ratios_sorted l i : (i + l <= m)%N -> sorted <=%R [seq t j / b j | j <- iota i l].
Proof.
elim: l i => // [[|l]] // IH i im /=; rewrite -[path _ _ _]/(sorted <=%R [seq t j / b j | j <- iota i.+1 l.+1]).
have im' : (i.+1 < m)%N by rewrite (leq_trans _ im) // !addnS ltnS ltnS leq_addr.
have [_ r _ _ _] := ct.
rewrite IH ?addSnnS // andbT (ler_cross _ _ (b_gt0 (ltnW im')) (b_gt0 im')).
by rewrite mulrC [X in _ <= X]mulrC; apply: r.
Qed.

Lemma points_cumulative x : x \in points -> exists2 v, v \in e & x = cumulative q e v.
Proof.
move=> /mapP[j]; rewrite mem_iota add0n /= => jm ->.
have [x0 _] := some_token jm.
by exists (nth x0 e j); rewrite ?mem_nth // cumulativeE ?mem_nth // index_uniq.
Qed.

Lemma points_facts :
  [/\ path <%R 0 points, last 0 points = 1, convex_on target_curve 0 points,
      forall x, x \in points -> x ^+ n.+1 <= target_curve x
    & target_curve 0 = 0 /\ target_curve 1 = 1].
Proof.
have [[c0 cm] r ab ck _] := ct; split.
- by have := @points_path m 0 (leqnn m); rewrite prefix_sum0.
- by have := points_last m 0; rewrite prefix_sum0 add0n X_last.
- have := @points_slopes m 0 (leqnn m); rewrite /convex_on prefix_sum0 => ->.
  exact: ratios_sorted.
- by move=> x /mapP[j]; rewrite mem_iota add0n => /= jm ->; rewrite target_curveE //; apply: ab.
- split; first by have := target_curveE (leq0n m); rewrite !prefix_sum0.
  by have := target_curveE (leqnn m); rewrite X_last cm.
Qed.

(** Its durations sum to 1 and its vertices are those of the lower convex envelope of
    T - s x^n while s runs through them. *)
Theorem minorant_merges_envelope :
  [/\ forall w, w \in minorant_merges -> 0 <= w.1,
      \sum_(w <- minorant_merges) w.1 = 1,
      forall w, w \in minorant_merges -> subseq w.2 points /\ last 0 w.2 = 1
    & env_process (fun x => x ^+ n.+1) target_curve 0 points 0 minorant_merges].
Proof.
have [pP lP cP geP [T0 T1]] := points_facts.
by have [] := optimal_iid_envelope (ltn0Sn n) pP lP cP geP T0 T1.
Qed.

(** It selects a draft with law exactly the target. *)
Theorem convex_minorant_selection v :
  selected (iid q (n := n.+1)) (fun s => minorant_pick minorant_merges s) v = target v.
Proof.
have [_ q1] := dq; have [pP lP cP geP [T0 T1]] := points_facts.
have [w0 w1 w2 w4 w3] := optimal_iid_envelope (ltn0Sn n) pP lP cP geP T0 T1.
rewrite -/minorant_merges in w0 w1 w2 w4 w3; set ws := minorant_merges in w0 w1 w2 w4 w3 *.
rewrite /selected /minorant_pick.
rewrite (eq_bigr (fun s : n.+1.-tuple V => \sum_(w <- ws) w.1 * (iid q s * block_pick R (block q e w.2) s v))); last first.
  by move=> s _; rewrite mulr_sumr; apply: eq_bigr => w _; rewrite mulrCA.
rewrite exchange_big /= /target.
rewrite (eq_bigr (fun w => w.1 * picked q (block q e w.2) n.+1 v)) => [|w _]; last by rewrite -mulr_sumr.
case: ifPn => ve; last first.
  by rewrite big1 // => w _; rewrite picked0 ?mulr0 //; apply/eqP; rewrite eE negbK in ve.
have im : (index v e < m)%N by rewrite index_mem.
have T3 j : (j <= m)%N ->
    prefix_sum t j = \sum_(w <- ws) w.1 * interp (fun x => x ^+ n.+1) 0 w.2 (X j).
  move=> jm; rewrite -target_curveE //; case: j jm => [_|j jm]; last first.
    by apply: w3; apply/mapP; exists j; rewrite ?mem_iota.
  rewrite prefix_sum0 T0 big_seq big1 // => w /w2[sw _].
  rewrite interp_first ?expr0n ?mulr0 //.
  by apply: subseq_path pP => //; apply: lt_trans.
have -> : t (index v e) = prefix_sum t (index v e).+1 - prefix_sum t (index v e).
  by rewrite prefix_sumS addrC addKr.
rewrite !T3 ?(ltnW im) // -sumrB big_seq [RHS]big_seq; apply: eq_bigr => w ww.
have [sw lw] := w2 w ww; rewrite -mulrBr; congr (_ * _).
rewrite (block_interp q0 eE _ lw q1) //.
- by rewrite cumulativeE // -(nth_q ve) prefix_sumS addrK.
- by apply: subseq_path pP => //; apply: lt_trans.
- by move=> x /(mem_subseq sw)/points_cumulative.
Qed.

(** The target meets p in 1 + P(H) - q(H)^n at the best prefix. *)
Lemma target_meets : \sum_v Num.min (target v) (p v)
  = 1 + mass p (prefix k) - mass q (prefix k) ^+ n.+1.
Proof.
have [_ _ _ _ cs] := ct; rewrite !mass_prefix // -cs.
rewrite (sum_support (f := fun v => Num.min (target v) (p v))) => [|v ve]; last first.
  by rewrite /target (negbTE ve) (min_idPl _).
apply: eq_bigr => i _.
have [x0 _] := some_token (ltn_ord i).
rewrite (nth_map x0) // /target mem_nth // index_uniq //.
by rewrite (nth_map x0 0).
Qed.

Lemma minorant_pick_dist (s : n.+1.-tuple V) : is_dist (minorant_pick minorant_merges s).
Proof.
have [w0 w1 _ _] := minorant_merges_envelope; split=> [v|]; rewrite /minorant_pick.
  by rewrite big_seq sumr_ge0 // => w ww; rewrite mulr_ge0 ?w0 ?block_pick_ge0.
rewrite exchange_big /= -[RHS]w1; apply: eq_bigr => w _.
by rewrite -mulr_sumr; case: (block_pick_dist R (block q e w.2) s) => _ ->; rewrite mulr1.
Qed.

Lemma minorant_pick_in ws (s : seq V) v : v \notin s -> minorant_pick ws s v = 0.
Proof. by move=> vs; rewrite /minorant_pick big1 // => w _; rewrite block_pick_in ?mulr0. Qed.

(** The convex-minorant verifier is lossless and optimal: its acceptance rate is
    1 + P(H) - q(H)^n at the best prefix, which is the minimum over all sets H. *)
Theorem convex_minorant_optimal : \sum_v p v = 1 ->
  [/\ lossless (iid q (n := n.+1)) p convex_minorant,
      acceptance (iid q (n := n.+1)) convex_minorant
      = 1 + mass p (prefix k) - mass q (prefix k) ^+ n.+1
    & forall H, 1 + mass p (prefix k) - mass q (prefix k) ^+ n.+1
                <= 1 + mass p H - mass q H ^+ n.+1].
Proof.
move=> pe; have dp : is_dist p by [].
have di := @iid_dist R V q n.+1 dq.
have lk := select_lossless di dp minorant_pick_dist.
have ge : 1 + mass p (prefix k) - mass q (prefix k) ^+ n.+1
          <= acceptance (iid q (n := n.+1)) convex_minorant.
  rewrite -target_meets.
  rewrite (eq_bigr _ (fun v _ => congr1 (fun x => Num.min x (p v)) (esym (convex_minorant_selection v)))).
  by apply: select_acceptance minorant_pick_dist _ => // s v; apply: minorant_pick_in.
have le H : acceptance (iid q (n := n.+1)) convex_minorant <= 1 + mass p H - mass q H ^+ n.+1.
  by rewrite -qmass_iid; apply: acceptance_bound.
by split=> // [|H]; [apply/eqP; rewrite eq_le ge le | apply: le_trans ge (le H)].
Qed.

End Selection.

(** ** The headline *)
Section Headline.
Variables (R : realFieldType) (V : finType).
Implicit Types (p q : V -> R).

(** The tokens of the support by p/q increasing, and the best prefix of them. *)
Definition ratio_order p q : seq V := sort (ratio_le p q) (enum (support q)).

Lemma ratio_orderP p q :
  [/\ uniq (ratio_order p q), forall v, (v \in ratio_order p q) = (q v != 0)
    & sorted (ratio_le p q) (ratio_order p q)].
Proof.
split; first by rewrite sort_uniq enum_uniq.
- by move=> v; rewrite mem_sort mem_enum inE.
- by apply: sort_sorted; apply: ratio_le_total.
Qed.

(** The first prefix that minimises [f]. *)
Definition first_min (m : nat) (g : nat -> R) : nat :=
  find (fun j => all (fun l => g j <= g l) (iota 0 m.+1)) (iota 0 m.+1).
Definition best_prefix (e : seq V) (f : {set V} -> R) : nat :=
  first_min (size e) (fun j => f (prefix e j)).

Lemma first_minP m (g : nat -> R) :
  (first_min m g <= m)%N /\ forall j, (j <= m)%N -> g (first_min m g) <= g j.
Proof.
pose a j := all (fun l => g j <= g l) (iota 0 m.+1).
have [k _ kmin] := arg_minP (fun j : 'I_m.+1 => g j) (i0 := ord0) (P := xpredT) isT.
have ha : has a (iota 0 m.+1).
  apply/hasP; exists (val k); first by rewrite mem_iota ltn_ord.
  apply/allP => l; rewrite mem_iota /= add0n => lm.
  by have := kmin (Ordinal lm) isT.
have lt : (find a (iota 0 m.+1) < m.+1)%N by move: ha; rewrite has_find size_iota.
have := nth_find 0%N ha; rewrite nth_iota // add0n => /allP h.
by split=> // j jm; apply: h; rewrite mem_iota.
Qed.

Lemma best_prefixP e (f : {set V} -> R) : (best_prefix e f <= size e)%N /\
  forall j, (j <= size e)%N -> f (prefix e (best_prefix e f)) <= f (prefix e j).
Proof. exact: first_minP. Qed.

(** The convex-minorant verifier for n+1 i.i.d. drafts, all of it computed from p, q. *)
Definition iid_best p q n : nat :=
  best_prefix (ratio_order p q) (fun H => mass p H - mass q H ^+ n.+1).
Definition iid_verifier p q n : n.+1.-tuple V -> V -> R :=
  convex_minorant p q (ratio_order p q) (iid_best p q n).

(** For every target p, draft law q (zeros allowed) and number of drafts n >= 1
    there is a lossless verifier for n i.i.d. drafts whose acceptance rate is
    min over all H of 1 + P(H) - Q(H), Q(H) = q(H)^n: the convex-minorant verifier. *)
Theorem iid_optimal p q n : is_dist p -> is_dist q ->
  lossless (iid q (n := n.+1)) p (iid_verifier p q (n := n)) /\
  acceptance (iid q (n := n.+1)) (iid_verifier p q (n := n))
  = optimal_acceptance (iid q (n := n.+1)) p.
Proof.
move=> dp dq; have [ue eE se] := ratio_orderP p q; have [p0 p1] := dp.
have [km kmin] := best_prefixP (ratio_order p q) (fun H => mass p H - mass q H ^+ n.+1).
have [lk ae le] := convex_minorant_optimal p0 dq ue eE se km kmin p1.
split=> //.
apply: (optimal_acceptance_meet (iid_dist n.+1 dq) dp
  (H := prefix (ratio_order p q) (iid_best p q n)) lk).
by rewrite qmass_iid ae.
Qed.

End Headline.
