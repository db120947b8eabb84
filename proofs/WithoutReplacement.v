(** * Drafts without replacement: sequential draws from the renormalised rest
    (theory, section 2).  Tokens with q = 0 are allowed: they are never drafted. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions QConvex.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section WithoutReplacement.
Variables (R : realFieldType) (V : finType) (q : V -> R).
Hypothesis q0 : forall v, 0 <= q v.
Implicit Types (H : {set V}) (c : R).

(** The law of the drafts: prod_k q(x_k) / (1 - q(x_1) - ... - q(x_{k-1})) on
    distinct tokens.  [W] is the mass not yet drawn. *)
Fixpoint wor_weight (s : seq V) (W : R) : R :=
  if s is v :: s' then
    if v \in s' then 0 else q v / W * wor_weight s' (W - q v)
  else 1.

Definition wor n (s : n.-tuple V) : R := wor_weight s (\sum_v q v).

(** The probability that the first [n] draws all fall in [H], when the mass
    outside [H] is [c]: Q(H), by recursion on the first draw. *)
Fixpoint wor_mass n H c : R :=
  if n is m.+1 then \sum_(v in H) q v / (mass q H + c) * wor_mass m (H :\ v) c else 1.

Let mge H : 0 <= mass q H := mass_ge0 H q0.

Lemma mass_le v H : v \in H -> q v <= mass q H.
Proof. by move=> vH; rewrite (massD1 q vH) ler_addl. Qed.

Lemma wor_mass_ge0 n H c : 0 <= c -> 0 <= wor_mass n H c.
Proof.
move=> c0; elim: n H => [|n IH] H /=; first exact: ler01.
apply: sumr_ge0 => v _.
by rewrite mulr_ge0 ?IH // divr_ge0 ?addr_ge0.
Qed.

(* the unnormalised recursion; it also holds when nothing is left to draw *)
Lemma wor_massS n H c : 0 <= c ->
  (mass q H + c) * wor_mass n.+1 H c = \sum_(v in H) q v * wor_mass n (H :\ v) c.
Proof.
move=> c0; rewrite /= big_distrr /=; apply: eq_bigr => v vH.
have [W|W] := eqVneq (mass q H + c) 0; last by rewrite mulrA mulrCA divff ?mulr1.
suff -> : q v = 0 by rewrite !mul0r mulr0.
apply/eqP; rewrite eq_le q0 andbT; apply: le_trans (mass_le vH) _.
by rewrite -W ler_addl.
Qed.

Lemma wor_mass0 n c : wor_mass n.+1 set0 c = 0.
Proof. by rewrite /= big_set0. Qed.

Lemma wor_mass_anti n H c d : 0 <= c -> c <= d -> wor_mass n H d <= wor_mass n H c.
Proof.
move=> c0 cd; have d0 := le_trans c0 cd.
elim: n H => [|n IH] H //=; apply: ler_sum => v vH.
have [qv|qv] := eqVneq (q v) 0; first by rewrite qv !mul0r.
have qv0 : 0 < q v by rewrite lt_neqAle eq_sym qv q0.
have m0 := lt_le_trans qv0 (mass_le vH).
apply: ler_pmul; rewrite ?wor_mass_ge0 ?divr_ge0 ?addr_ge0 //.
by rewrite ler_pmul2l // lef_pinv ?posrE ?ltr_paddr // ler_add2l.
Qed.

Lemma wor_massS_le n H c : 0 <= c -> wor_mass n.+1 H c <= wor_mass n H c.
Proof.
move=> c0; elim: n H => [|n IH] H.
  have [W|W] := eqVneq (mass q H + c) 0.
    by rewrite /= big1 ?ler01 // => v _; rewrite W invr0 mulr0 mul0r.
  have W0 : 0 < mass q H + c by rewrite lt_neqAle eq_sym W addr_ge0.
  rewrite -(ler_pmul2l W0) wor_massS //= mulr1.
  by rewrite (eq_bigr q) => [|v _]; rewrite ?mulr1 // ler_addl.
rewrite [X in X <= _]/= [X in _ <= X]/=.
by apply: ler_sum => v vH; apply: ler_wpmul2l; rewrite ?divr_ge0 ?addr_ge0 //; apply: IH.
Qed.

Lemma setU1D1 H x v : x \notin H -> v \in H -> (x |: H) :\ v = x |: (H :\ v).
Proof.
move=> xH vH; apply/setP => z; rewrite !inE; case: (eqVneq z x) => //= ->.
by rewrite andbT; apply: contraNneq xH => ->.
Qed.

Lemma wor_massU1 n H x c : 0 <= c -> x \notin H ->
  (q x + mass q H + c) * wor_mass n.+1 (x |: H) c
  = q x * wor_mass n H c + \sum_(v in H) q v * wor_mass n (x |: (H :\ v)) c.
Proof.
move=> c0 xH; rewrite -massU1 // wor_massS //.
rewrite (big_setU1 _ xH) /= setU1K //; congr (_ + _).
by apply: eq_bigr => v vH; rewrite setU1D1.
Qed.

(* a token of mass 0 changes nothing *)
Lemma wor_mass_null n H x c : q x = 0 -> wor_mass n (x |: H) c = wor_mass n H c.
Proof.
move=> qx; elim: n H => //= n IH H.
have [xH|xH] := boolP (x \in H); first by rewrite (setUidPr _) // sub1set.
rewrite (big_setU1 _ xH) /= massU1 // qx mul0r mul0r !add0r.
by apply: eq_bigr => v vH; rewrite setU1D1 // IH.
Qed.

Lemma wor_mass_monoU1 n H x c : 0 <= c -> x \notin H ->
  wor_mass n H c <= wor_mass n (x |: H) c.
Proof.
move=> c0; elim: n H => [|n IH] H xH; first by [].
have [qx|qx] := eqVneq (q x) 0; first by rewrite wor_mass_null.
have qx0 : 0 < q x by rewrite lt_neqAle eq_sym qx q0.
have W0 : 0 < q x + mass q H + c by rewrite -addrA ltr_paddr // addr_ge0.
rewrite -(ler_pmul2l W0) wor_massU1 //.
have h1 : q x * wor_mass n.+1 H c <= q x * wor_mass n H c.
  by rewrite ler_pmul2l // wor_massS_le.
have h2 : (mass q H + c) * wor_mass n.+1 H c
          <= \sum_(v in H) q v * wor_mass n (x |: (H :\ v)) c.
  rewrite wor_massS //; apply: ler_sum => v vH.
  by rewrite ler_wpmul2l // IH // !inE negb_and xH orbT.
by apply: (ler_from (ler_add h1 h2)); ring.
Qed.

(* the chord condition, with the mass outside carried along *)
Lemma wor_mass_chord n H x y c : 0 <= c -> x \notin H -> y \notin H -> x != y ->
  q y * (wor_mass n (x |: H) (q y + c) - wor_mass n H (q x + q y + c))
  <= q x * (wor_mass n (y |: (x |: H)) c - wor_mass n (x |: H) (q y + c)).
Proof.
move=> c0; elim: n H => [|n IH] H xH yH xy; first by rewrite /= !subrr !mulr0.
have yc : 0 <= q y + c by rewrite addr_ge0.
have xyc : 0 <= q x + q y + c by rewrite -addrA addr_ge0.
have yxH : y \notin x |: H by rewrite !inE negb_or yH eq_sym xy.
have xyH : x \notin y |: H by rewrite !inE negb_or xH xy.
pose W := q x + q y + mass q H + c.
have Wge : 0 <= W by rewrite /W !addr_ge0.
have [Wz|Wnz] := eqVneq W 0.
  have qz z : q z <= W -> q z = 0.
    by move=> h; apply/eqP; rewrite eq_le q0 andbT -Wz.
  have -> : q x = 0 by apply: qz; rewrite /W -!addrA ler_addl ?addr_ge0.
  have -> : q y = 0 by apply: qz; rewrite /W -!addrA addrCA ler_addl ?addr_ge0.
  by rewrite !mul0r.
have W0 : 0 < W by rewrite lt_neqAle eq_sym Wnz.
have e1 : W * wor_mass n.+1 (x |: H) (q y + c)
  = q x * wor_mass n H (q y + c) + \sum_(v in H) q v * wor_mass n (x |: (H :\ v)) (q y + c).
  by rewrite -wor_massU1 //; congr (_ * _); rewrite /W; ring.
have e2 : W * wor_mass n.+1 H (q x + q y + c)
  = \sum_(v in H) q v * wor_mass n (H :\ v) (q x + q y + c).
  by rewrite -wor_massS //; congr (_ * _); rewrite /W; ring.
have e3 : W * wor_mass n.+1 (y |: (x |: H)) c
  = q y * wor_mass n (x |: H) c + q x * wor_mass n (y |: H) c
    + \sum_(v in H) q v * wor_mass n (y |: (x |: (H :\ v))) c.
  have -> : W = q y + mass q (x |: H) + c by rewrite massU1 // /W; ring.
  rewrite wor_massU1 // -addrA; congr (_ + _); rewrite (big_setU1 _ xH) /= setU1K //.
  by congr (_ + _); apply: eq_bigr => v vH; rewrite setU1D1.
rewrite -(ler_pmul2l W0).
set A := wor_mass n.+1 (x |: H) _ in e1 *; set B := wor_mass n.+1 H _ in e2 *.
set C := wor_mass n.+1 (y |: _) _ in e3 *.
have -> : W * (q y * (A - B)) = q y * (W * A - W * B) by ring.
have -> : W * (q x * (C - A)) = q x * (W * C - W * A) by ring.
rewrite e1 e2 e3.
have hx : wor_mass n H (q y + c) <= wor_mass n (y |: H) c.
  by apply: le_trans (wor_mass_anti n H c0 _) (wor_mass_monoU1 n c0 yH); rewrite ler_addr.
have hy : wor_mass n H (q y + c) <= wor_mass n (x |: H) c.
  by apply: le_trans (wor_mass_anti n H c0 _) (wor_mass_monoU1 n c0 xH); rewrite ler_addr.
have hs : \sum_(v in H) q v * (q y * (wor_mass n (x |: (H :\ v)) (q y + c)
              - wor_mass n (H :\ v) (q x + q y + c)))
       <= \sum_(v in H) q v * (q x * (wor_mass n (y |: (x |: (H :\ v))) c
              - wor_mass n (x |: (H :\ v)) (q y + c))).
  apply: ler_sum => v vH; rewrite ler_wpmul2l // IH //.
    by rewrite !inE negb_and xH orbT.
  by rewrite !inE negb_and yH orbT.
have sumE (a : R) (F1 F2 : V -> R) :
    \sum_(v in H) q v * (a * (F1 v - F2 v))
    = a * (\sum_(v in H) q v * F1 v - \sum_(v in H) q v * F2 v).
  by rewrite -sumrB big_distrr /=; apply: eq_bigr => v _; ring.
rewrite !sumE in hs.
have k1 : q x * (q x * wor_mass n H (q y + c)) <= q x * (q x * wor_mass n (y |: H) c).
  by rewrite ler_wpmul2l // ler_wpmul2l.
have k2 : q x * (q y * wor_mass n H (q y + c)) <= q x * (q y * wor_mass n (x |: H) c).
  by rewrite ler_wpmul2l // ler_wpmul2l.
by apply: (ler_from (ler_add hs (ler_add k1 k2))); ring.
Qed.

Lemma qmass_wor_weight n H c :
  \sum_(s : n.-tuple V) (if all (mem H) s then wor_weight s (mass q H + c) else 0) = wor_mass n H c.
Proof.
elim: n H => [|n IH] H; first by rewrite sum_tuple0.
rewrite sum_tuple_cons /= [RHS]big_mkcond; apply: eq_bigr => v _.
case: ifPn => vH; last by rewrite big1.
rewrite -IH big_distrr /=; apply: eq_bigr => s _.
have -> : all (mem (H :\ v)) s = all (mem H) s && (v \notin s).
  apply/allP/andP => [h|[/allP h vs] z zs].
    split; first by apply/allP => z /h; rewrite /= !inE => /andP[].
    by apply/negP => /h; rewrite /= !inE eqxx.
  by rewrite /= !inE [_ \in H]h // andbT; apply: contraNneq vs => <-.
case: (all (mem H) s); rewrite /= ?mulr0 //.
case: (boolP (v \in s)) => vs /=; rewrite ?mulr0 //.
by rewrite (massD1 q vH); congr (_ * wor_weight _ _); ring.
Qed.

(** Q(H) without replacement is the recursion above. *)
Theorem qmass_wor n H : qmass (wor (n := n)) H = wor_mass n H (mass q (~: H)).
Proof.
rewrite qmassE -qmass_wor_weight; apply: eq_bigr => s _; rewrite /wor.
suff -> : \sum_v q v = mass q H + mass q (~: H) by [].
rewrite (bigID (mem H)) /=; congr (_ + _).
by apply: eq_bigl => v; rewrite inE.
Qed.

Lemma wor_ge0 n (s : n.-tuple V) : 0 <= wor s.
Proof.
rewrite /wor; have [u|] := boolP (uniq s).
  suff h : forall (t : seq V) W, uniq t -> \sum_(v <- t) q v <= W -> 0 <= wor_weight t W.
    apply: h => //; rewrite big_uniq //=; apply: ler_sum_subset => //.
  elim=> [|v t IH] W /=; first by rewrite ler01.
  move=> /andP[vt ut]; rewrite big_cons (negbTE vt) => h.
  rewrite mulr_ge0 //.
    rewrite divr_ge0 //; apply: le_trans h; rewrite addr_ge0 // sumr_ge0 //.
  by apply: IH => //; rewrite ler_subr_addl.
suff h : forall (t : seq V) W, ~~ uniq t -> wor_weight t W = 0 by move=> /h ->.
elim=> [|v t IH] W //=; rewrite negb_and negbK; case: ifP => //= _ h.
by rewrite IH ?mulr0.
Qed.

Lemma wor_massT n H : (n <= #|H :&: support q|)%N -> wor_mass n H 0 = 1.
Proof.
elim: n H => [|n IH] H //= nH.
have [x] : exists x, x \in H :&: support q by apply/card_gt0P; apply: leq_trans nH.
rewrite !inE => /andP[xH qx].
have m0 : 0 < mass q H.
  by apply: lt_le_trans (mass_le xH); rewrite lt_neqAle eq_sym qx q0.
rewrite (eq_bigr (fun v => q v / mass q H)) => [|v vH].
  by rewrite -mulr_suml divff // lt0r_neq0.
rewrite addr0; have [->|qv] := eqVneq (q v) 0; first by rewrite !mul0r.
rewrite IH ?mulr1 //.
move: nH; rewrite (cardsD1 v) !inE vH qv add1n ltnS => /leq_trans; apply.
by apply/subset_leq_card/subsetP => z; rewrite !inE => /and3P[-> -> ->].
Qed.

(** The law of the drafts is a distribution when the support has [n] tokens. *)
Theorem wor_dist n : (n <= #|support q|)%N -> is_dist (wor (n := n)).
Proof.
move=> nV; split; first exact: wor_ge0.
by rewrite -qmassT qmass_wor setCT mass0 wor_massT // setTI.
Qed.

(** Sampling without replacement is q-convex ([1], sec. 4). *)
Theorem qconvex_wor n : qconvex q (qmass (wor (n := n))).
Proof.
have mC H z : z \notin H -> mass q (~: H) = q z + mass q (~: (z |: H)).
  move=> zH; rewrite (@massD1 _ _ _ _ z) ?in_setC //; congr (_ + mass q _).
  by apply/setP => v; rewrite !inE negb_or.
split=> [H x qx|H x y xH yH xy]; rewrite !qmass_wor.
  have [xH|xH] := boolP (x \in H); first by rewrite (setUidPr _) // sub1set.
  by rewrite wor_mass_null // (mC H x xH) qx add0r.
have yxH : y \notin x |: H by rewrite !inE negb_or yH eq_sym xy.
rewrite (mC H x xH) (mC _ y yxH) addrA.
by apply: wor_mass_chord => //; apply: mass_ge0.
Qed.

End WithoutReplacement.
