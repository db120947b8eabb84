(** * q-convexity and the prefix rule (theory, section 3; [1], sec. 4).

    Tokens with q = 0 are allowed everywhere: they add nothing to Q. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions Duality.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section QConvex.
Variables (R : realFieldType) (V : finType).
Implicit Types (p q : V -> R) (Q : {set V} -> R) (H : {set V}) (e : seq V).

(** Along every ordering the points (q(H_j), Q(H_j)) of growing prefixes lie on a
    convex curve.  Locally: a token of q-mass 0 does not move the point, and of two
    successive chords the second is at least as steep (cross-multiplied, so that
    nothing divides by 0).  [qconvexP] below is the statement along orderings. *)
Definition qconvex q Q : Prop :=
  (forall H x, q x = 0 -> Q (x |: H) = Q H) /\
  (forall H x y, x \notin H -> y \notin H -> x != y ->
     q y * (Q (x |: H) - Q H) <= q x * (Q (y |: (x |: H)) - Q (x |: H))).

(** The chord slopes along an ordering [e] that starts at [H]. *)
Fixpoint qslopes q Q H e : seq R :=
  if e is x :: e' then (Q (x |: H) - Q H) / q x :: qslopes q Q (x |: H) e' else [::].

Definition support q : {set V} := [set v | q v != 0].

Lemma null_support q Q H :
  (forall H x, q x = 0 -> Q (x |: H) = Q H) -> Q H = Q (H :&: support q).
Proof.
move=> null; have [m] := ubnP #|H :\: support q|; elim: m H => // m IH H.
have [/eqP|[x]] := set_0Vmem (H :\: support q).
  by rewrite setD_eq0 => /setIidPl ->.
rewrite ltnS => xH lm; move: (xH); rewrite !inE negbK => /andP[/eqP qx xH'].
rewrite -{1}(setD1K xH') null // IH; last first.
  apply: leq_trans lm; rewrite [X in (_ < X)%N](cardsD1 x) xH ltnS.
  by apply/subset_leq_card/subsetP => z; rewrite !inE => /and3P[-> -> ->].
congr Q; apply/setP => z; rewrite !inE; case: (eqVneq z x) => //= ->.
by rewrite qx eqxx andbF.
Qed.

Lemma qslopes_cat q Q H e1 e2 :
  qslopes q Q H (e1 ++ e2)
  = qslopes q Q H e1 ++ qslopes q Q ([set v in e1] :|: H) e2.
Proof.
elim: e1 H => [|x e IH] H /=.
  by congr qslopes; apply/setP => z; rewrite !inE.
rewrite IH; congr (_ :: (_ ++ qslopes _ _ _ _)); apply/setP => z.
by rewrite !inE orbCA orbA.
Qed.

(** q-convexity as in the paper: zero tokens do not move the point, and along
    every ordering of tokens with q > 0 the chord slopes are nondecreasing. *)
Theorem qconvexP q Q : (forall v, 0 <= q v) ->
  qconvex q Q <->
  (forall H x, q x = 0 -> Q (x |: H) = Q H) /\
  (forall e, uniq e -> {in e, forall v, 0 < q v} -> sorted <=%R (qslopes q Q set0 e)).
Proof.
move=> q0; split=> [qc|[null h]]; split; [by case: qc | | exact: null |].
  move=> e ue pe; have [null ch] := qc.
  suff gen H : (forall v, v \in e -> v \notin H) -> sorted <=%R (qslopes q Q H e).
    by apply: gen => v _; rewrite inE.
  elim: e ue pe H => [|x [|y e] IH] // ue pe H dis.
  have xH := dis x (mem_head _ _); have yH : y \notin H by apply: dis; rewrite !inE eqxx orbT.
  have xy : x != y by move: ue; rewrite /= !inE negb_or => /andP[/andP[]].
  apply/andP; split.
    have qx : 0 < q x by apply: pe; rewrite mem_head.
    have qy : 0 < q y by apply: pe; rewrite !inE eqxx orbT.
    by rewrite ler_cross //; apply: ch.
  apply: IH; [by case/andP: ue | by move=> v ve; apply: pe; rewrite inE ve orbT |].
  move=> v ve; rewrite !inE negb_or dis ?andbT; last by rewrite inE ve orbT.
  by apply: contraTneq ve => ->; case/andP: ue.
move=> H x y xH yH xy.
have [qx|qx] := eqVneq (q x) 0; first by rewrite qx (null H x qx) subrr mulr0 mul0r.
have [qy|qy] := eqVneq (q y) 0.
  by rewrite qy mul0r (null (x |: H) y qy) subrr mulr0.
pose S := H :&: support q.
have suppE K := null_support K null.
have exS : (x |: H) :&: support q = x |: S.
  by apply/setP => z; rewrite !inE; case: eqP => //= ->; rewrite qx.
have eyS : (y |: (x |: H)) :&: support q = y |: (x |: S).
  apply/setP => z; rewrite !inE.
  by case: eqP => [->|_]; rewrite /= ?qy //; case: eqP => //= ->; rewrite qx.
rewrite (suppE H) (suppE (x |: H)) (suppE (y |: _)) exS eyS -/S.
have xS : x \notin S by rewrite inE negb_and xH.
have yS : y \notin S by rewrite inE negb_and yH.
have qx0 : 0 < q x by rewrite lt_neqAle eq_sym qx q0.
have qy0 : 0 < q y by rewrite lt_neqAle eq_sym qy q0.
have := h (enum S ++ [:: x; y]); rewrite cat_uniq enum_uniq /= !inE !mem_enum.
rewrite (negbTE xS) (negbTE yS) xy => /(_ isT).
rewrite qslopes_cat => h'.
have /h' /cat_sorted2[_] /= : {in enum S ++ [:: x; y], forall v, 0 < q v}.
  move=> v; rewrite mem_cat mem_enum !inE => /or3P[/andP[_ qv]|/eqP ->|/eqP ->] //.
  by rewrite lt_neqAle eq_sym qv q0.
rewrite andbT (_ : [set v in enum S] :|: set0 = S); last first.
  by rewrite setU0; apply/setP => z; rewrite inE mem_enum.
by rewrite ler_cross.
Qed.

(** ** Supermodularity *)
Lemma local_supermodular Q :
  (forall H x y, x \notin H -> y \notin H -> x != y ->
     Q (x |: H) - Q H <= Q (x |: (y |: H)) - Q (y |: H)) -> supermodular Q.
Proof.
move=> loc.
have inc : forall n H K x, #|K :\: H| = n -> H \subset K -> x \notin K ->
    Q (x |: H) - Q H <= Q (x |: K) - Q K.
  elim=> [|n IH] H K x.
    move/eqP; rewrite cards_eq0 setD_eq0 => KH HK _.
    by have -> : H = K by apply/eqP; rewrite eqEsubset HK KH.
  move=> cKH HK xK.
  have /card_gt0P[y] : (0 < #|K :\: H|)%N by rewrite cKH.
  rewrite inE => /andP[yH yK].
  have xH : x \notin H by apply: contra xK; apply: (subsetP HK).
  have xy : x != y by apply: contraNneq xK => ->.
  apply: (le_trans (loc H x y xH yH xy)); apply: IH => //.
    move: cKH; rewrite (cardsD1 y) inE yH yK add1n => -[<-].
    by apply: eq_card => z; rewrite !inE negb_or andbA.
  by rewrite subUset sub1set yK.
suff full : forall n A B, #|A :\: B| = n ->
    Q A - Q (A :&: B) <= Q (A :|: B) - Q B.
  by move=> A B; apply: (ler_from (full _ A B erefl)); ring.
elim=> [|n IH] A B.
  move/eqP; rewrite cards_eq0 setD_eq0 => AB.
  by rewrite (setIidPl AB) (setUidPr AB) !subrr.
move=> cAB; have /card_gt0P[x] : (0 < #|A :\: B|)%N by rewrite cAB.
rewrite inE => /andP[xB xA].
have := IH (A :\ x) B.
rewrite (_ : (A :\ x) :&: B = A :&: B); last first.
  apply/setP => z; rewrite !inE; case: eqP => // -> /=.
  by rewrite (negbTE xB) andbF.
have h1 : #|(A :\ x) :\: B| = n.
  move: cAB; rewrite (cardsD1 x) inE xB xA add1n => -[<-].
  by apply: eq_card => z; rewrite !inE; do !case: (_ \in _); case: eqP.
move=> /(_ h1) h2.
have := inc _ (A :\ x) ((A :\ x) :|: B) x erefl (subsetUl _ _).
rewrite !inE eqxx /= (negbTE xB) => /(_ isT).
rewrite setUA setD1K // => h3.
by apply: (ler_from (ler_add h2 h3)); ring.
Qed.

(** q-convex implies supermodular. *)
Theorem qconvex_supermodular q Q :
  (forall v, 0 <= q v) -> qconvex q Q -> supermodular Q.
Proof.
move=> q0 [null qc]; apply: local_supermodular => H x y xH yH xy.
have [qx|qx] := eqVneq (q x) 0; first by rewrite !(null _ x qx) !subrr.
have [qy|qy] := eqVneq (q y) 0; first by rewrite setUCA !(null _ y qy).
have qx0 : 0 < q x by rewrite lt_neqAle eq_sym qx q0.
have qy0 : 0 < q y by rewrite lt_neqAle eq_sym qy q0.
have yx : y != x by rewrite eq_sym.
have hx := qc H x y xH yH xy; have hy := qc H y x yH xH yx.
rewrite [y |: (x |: H)]setUCA in hx.
set a := Q H in hx hy *; set b := Q (x |: H) in hx hy *.
set c := Q (y |: H) in hx hy *; set d := Q _ in hx hy *.
(* if d - c < b - a, then both chords are contradicted *)
rewrite leNgt; apply/negP => lt.
have lt' : d - b < c - a by apply: (ltr_from lt); ring.
have l1 : q x * (d - b) < q x * (c - a) by rewrite ltr_pmul2l.
have l2 : q y * (d - c) < q y * (b - a) by rewrite ltr_pmul2l.
have := le_lt_trans hx (lt_le_trans l1 (le_trans hy (ltW l2))).
by rewrite ltxx.
Qed.

(** Q is supermodular whatever the law of the drafts: P - Q is submodular. *)
Theorem qmass_supermodular n (pd : n.-tuple V -> R) :
  (forall s, 0 <= pd s) -> supermodular (qmass pd).
Proof.
move=> pd0 A B.
rewrite !qmassE -!big_split /=; apply: ler_sum => s _.
have imp (C D : {set V}) : C \subset D -> all (mem C) s -> all (mem D) s.
  by move=> /subsetP CD /allP hs; apply/allP => v vs; apply: CD; apply: hs.
have hI : all (mem (A :&: B)) s = all (mem A) s && all (mem B) s.
  by rewrite -all_predI; apply: eq_all => v; rewrite /= inE.
rewrite hI; case hA: (all (mem A) s); case hB: (all (mem B) s) => /=;
  rewrite ?(imp _ _ (subsetUl A B) hA) ?(imp _ _ (subsetUr A B) hB)
          ?addr0 ?add0r //.
by case: ifP.
Qed.

(** ** The prefix rule *)

(** The order of the tokens: p/q increasing, tokens with q = 0 last. *)
Definition ratio_le p q (x y : V) : bool :=
  (q y == 0) || (q x != 0) && (p x / q x <= p y / q y).

Lemma ratio_le_trans p q : transitive (ratio_le p q).
Proof.
move=> y x z; rewrite /ratio_le; case: (eqVneq (q z) 0) => //= qz.
case: (eqVneq (q y) 0) => //= qy /andP[-> h1] h2.
exact: le_trans h1 h2.
Qed.

Lemma ratio_le_total p q : total (ratio_le p q).
Proof.
move=> x y; rewrite /ratio_le.
by case: (eqVneq (q x) 0); case: (eqVneq (q y) 0) => //= _ _; apply: le_total.
Qed.

(** When Q is q-convex, a prefix of the tokens sorted by p/q minimises P - Q. *)
Theorem prefix_optimal p q Q e :
  (forall v, 0 <= p v) -> (forall v, 0 <= q v) -> qconvex q Q ->
  (forall v, v \in e) -> sorted (ratio_le p q) e ->
  exists k, forall H, mass p [set v in take k e] - Q [set v in take k e]
                      <= mass p H - Q H.
Proof.
move=> p0 q0 qc eV se; pose f H := mass p H - Q H.
have [H1 _ H1min] := arg_minP f (i0 := set0) (P := xpredT) isT.
pose P H := (H \subset support q) && (f H <= f H1).
have P1 : P (H1 :&: support q).
  rewrite /P subsetIr /f -(null_support H1 qc.1) ler_sub //.
  by apply: ler_sum_subset => // v; rewrite inE => /andP[].
have [H /andP[HS fH] Hmax] := @arg_maxnP _ _ P (fun H => #|H|) P1.
have Hmin K : f H <= f K by apply: le_trans fH (H1min K isT).
have down x y : y \in H -> (index x e < index y e)%N -> x \in H.
  move=> yH xy; apply/negPn/negP => xH.
  have := sorted_ltn_index (@ratio_le_trans p q) se _ _ (eV x) (eV y) xy.
  have := subsetP HS y yH; rewrite inE => qy.
  rewrite /ratio_le (negbTE qy) /= => /andP[qx pxy].
  have qx0 : 0 < q x by rewrite lt_neqAle eq_sym qx q0.
  have qy0 : 0 < q y by rewrite lt_neqAle eq_sym qy q0.
  have yx : y != x by apply: contraNneq xH => <-.
  have := qc.2 (H :\ y) y x; rewrite !inE eqxx (negbTE xH) andbF setD1K // => /(_ isT isT yx) ch.
  have ry : p y <= Q H - Q (H :\ y).
    by apply: (ler_from (Hmin (H :\ y))); rewrite /f (massD1 p yH); ring.
  have rx : p x <= Q (x |: H) - Q H.
    rewrite -(ler_pmul2l qy0); apply: le_trans ch.
    apply: le_trans (_ : q x * p y <= _); last by rewrite ler_pmul2l.
    by rewrite -ler_cross.
  have fx : f (x |: H) <= f H.
    by apply: (ler_from rx); rewrite /f massU1 //; ring.
  have /Hmax : P (x |: H) by rewrite /P subUset sub1set inE qx HS (le_trans fx fH).
  by rewrite /geq /= cardsU1 xH add1n ltnn.
pose k := (\max_(v in H) (index v e).+1)%N; exists k => K.
suff -> : [set v in take k e] = H by apply: Hmin.
apply/setP => v; rewrite inE in_take //.
apply/idP/idP => [|vH]; last by rewrite /k (bigD1 v) //= leq_max ltnSn.
apply: contraTT => vH; rewrite -leqNgt; apply/bigmax_leqP => y yH.
rewrite ltnNge leq_eqVlt negb_or; apply/andP; split.
  by apply: contraNneq vH => hi; rewrite -(nth_index v (eV v)) hi nth_index.
by apply: contra vH => /down; apply.
Qed.

(** The optimum of the linear program is attained at a prefix. *)
Corollary strong_duality_prefix n (pd : n.-tuple V -> R) p q e :
  is_dist pd -> is_dist p -> (forall v, 0 <= q v) -> qconvex q (qmass pd) ->
  (forall v, v \in e) -> sorted (ratio_le p q) e ->
  exists pi k, [/\ coupling pd p pi,
    coupling_acceptance pi = 1 + mass p [set v in take k e] - qmass pd [set v in take k e]
  & forall pi', coupling pd p pi' -> coupling_acceptance pi' <= coupling_acceptance pi].
Proof.
move=> dd dp q0 qc eV se; have [p0 _] := dp.
have [pi [H [cpl ae Hmin]]] := strong_duality dd dp.
have [k kmin] := prefix_optimal p0 q0 qc eV se.
exists pi, k; split=> // [|pi' c']; last by rewrite ae weak_duality.
rewrite ae -!addrA; congr (1 + _).
by apply/eqP; rewrite eq_le Hmin kmin.
Qed.

End QConvex.
