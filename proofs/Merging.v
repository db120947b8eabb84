(** * The merging process (theory, section 4, convex-minorant verifier).

    Let T be convex on the points 0 = X_0 < ... < X_m = 1 and T >= u there, u convex,
    with equality at both ends.  As s grows from 0 to 1 the lower convex envelope of
    T - s u loses vertices one after the other.  Between two losses the envelope is
    carried by one list of vertices, so the integral over s of the piecewise linear
    interpolation of u on the vertices of the envelope is a finite sum, and that sum
    is T.  [merging] builds the list of (duration, vertices). *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Merge.
Variable R : realFieldType.
Implicit Types (g u F : R -> R) (a b j x t r : R) (L : seq R).

Definition slope g a b : R := (g b - g a) / (b - a).
Definition chord g a b x : R := g a + slope g a b * (x - a).

(** Piecewise linear interpolation of g on the vertices a :: L *)
Fixpoint interp g a L x : R :=
  if L is b :: L' then
    if x <= b then chord g a b x else interp g b L' x
  else g a.

Fixpoint slopes g a L : seq R :=
  if L is b :: L' then slope g a b :: slopes g b L' else [::].

(** Convexity on the vertices *)
Definition convex_on g a L : bool := sorted <=%R (slopes g a L).

Lemma slope_sub F u t a b :
  slope (fun y => F y - t * u y) a b = slope F a b - t * slope u a b.
Proof. by rewrite /slope mulrA -mulrBl; congr (_ / _); ring. Qed.

Lemma interp_sub F u t a L x :
  interp F a L x = interp (fun y => F y - t * u y) a L x + t * interp u a L x.
Proof.
elim: L a => [|b L IH] a /=; first by ring.
case: ifP => _ //; rewrite /chord slope_sub; ring.
Qed.

Lemma slopeE g a b : a < b -> g b = g a + slope g a b * (b - a).
Proof.
by move=> ab; rewrite /slope divfK ?subr_eq0 ?gt_eqF // addrC subrK.
Qed.

Lemma slope_mid g a j b : a < j -> j < b -> slope g a j = slope g j b ->
  slope g a b = slope g a j.
Proof.
move=> aj jb e; have ab := lt_trans aj jb.
have h : g b - g a = slope g a j * (b - a).
  by rewrite (slopeE g jb) -e (slopeE g aj); ring.
by rewrite {1}/slope h mulfK // subr_eq0 gt_eqF.
Qed.

(* removal of one collinear inner vertex *)
Inductive rm g : R -> seq R -> seq R -> Prop :=
| rm_here a j b s : slope g a j = slope g j b -> rm g a [:: j, b & s] (b :: s)
| rm_next a b L L' : rm g b L L' -> rm g a (b :: L) (b :: L').

Lemma rm_size g a L L' : rm g a L L' -> size L = (size L').+1.
Proof. by elim=> //= {}a b {}L {}L' _ ->. Qed.

Lemma rm_subseq g a L L' : rm g a L L' -> subseq L' L.
Proof.
elim=> [{}a j b s _|{}a b {}L {}L' _ IH]; last by rewrite /= eqxx.
exact: subseq_cons.
Qed.

Lemma rm_last g a L L' : rm g a L L' -> last a L' = last a L.
Proof. by elim. Qed.

Lemma rm_slopes g a L L' : path <%R a L -> rm g a L L' ->
  subseq (slopes g a L') (slopes g a L).
Proof.
move=> pL h; elim: h pL => [{}a j b s e|{}a b {}L {}L' _ IH] /=.
  move=> /and3P[aj jb _]; rewrite -e (slope_mid aj jb e) eqxx.
  exact: subseq_cons.
by move=> /andP[_ /IH h]; rewrite eqxx.
Qed.

Lemma rm_interp g a L L' x : path <%R a L -> rm g a L L' ->
  interp g a L x = interp g a L' x.
Proof.
move=> pL h; elim: h pL => [{}a j b s e|{}a b {}L {}L' _ IH] /=; last first.
  by move=> /andP[_ /IH ->].
move=> /and3P[aj jb _]; have em := slope_mid aj jb e.
have cj : chord g j b x = chord g a b x.
  by rewrite /chord em -e (slopeE g aj); ring.
case: (leP x j) => xj; last by rewrite cj.
by rewrite (le_trans xj (ltW jb)) /chord em.
Qed.

Section Process.
Variables (u : R -> R) (lo : R).
Hypothesis uc : forall x y z, lo <= x -> x < y -> y < z -> slope u x y <= slope u y z.

Let sb F t := fun y => F y - t * u y.

Lemma convex_le F t t1 a L : lo <= a -> path <%R a L -> t <= t1 ->
  convex_on (sb F t1) a L -> convex_on (sb F t) a L.
Proof.
move=> la pL tt; elim: L a la pL => [|j [|b s] IH] a la //.
move=> /= /and3P[aj jb ps] /andP[h1 h2]; apply/andP; split; last first.
  by apply: (IH j) => //; [exact: le_trans la (ltW aj) | rewrite /= jb].
move: h1; rewrite !slope_sub => h1.
have h3 : (t1 - t) * slope u a j <= (t1 - t) * slope u j b.
  by rewrite ler_wpmul2l ?subr_ge0 // uc.
by apply: (ler_from (ler_add h1 h3)); ring.
Qed.

(** The first time t <= r at which an inner vertex of F - t u becomes collinear with
    its neighbours, and the vertices that are kept. *)
Fixpoint first_death F r a L : R * option (seq R) :=
  if L is j :: L' then
    if L' is b :: s then
      let: (t, kept) := first_death F r j L' in
      let D := slope F j b - slope F a j in
      let Du := slope u j b - slope u a j in
      if t * Du <= D then (t, omap (cons j) kept) else (D / Du, Some L')
    else (r, None)
  else (r, None).

(** The merging process of F, run for the time r: (duration, vertices) in order. *)
Fixpoint merges m F r a L : seq (R * seq R) :=
  if m is m'.+1 then
    let: (t, kept) := first_death F r a L in
    if kept is Some L' then (t, L) :: merges m' (sb F t) (r - t) a L' else [:: (r, L)]
  else [:: (r, L)].

Lemma first_death_cons F r a j b s : first_death F r a [:: j, b & s] =
  let: (t, kept) := first_death F r j (b :: s) in
  let D := slope F j b - slope F a j in
  let Du := slope u j b - slope u a j in
  if t * Du <= D then (t, omap (cons j) kept) else (D / Du, Some (b :: s)).
Proof. by []. Qed.

Lemma first_deathP F r a L : lo <= a -> path <%R a L -> 0 <= r -> convex_on F a L ->
  let: (t, kept) := first_death F r a L in
  [/\ 0 <= t, t <= r, convex_on (sb F t) a L
    & if kept is Some L' then rm (sb F t) a L L' else t = r].
Proof.
move=> la pL r0; elim: L a la pL => [|j [|b s] IH] a la //.
move=> pL cF; have /and3P[aj jb ps] : [&& a < j, j < b & path <%R b s] := pL.
have /andP[hF hFs] : (slope F a j <= slope F j b) && convex_on F j (b :: s) := cF.
have lj := le_trans la (ltW aj).
have pj : path <%R j (b :: s) by rewrite /= jb.
have := IH j lj pj hFs; rewrite first_death_cons; cbv zeta.
move: (first_death F r j (b :: s)) => [t1 kept] [t10 t1r c1 tight].
set D := slope F j b - slope F a j; set Du := slope u j b - slope u a j.
have D0 : 0 <= D by rewrite subr_ge0.
have Du0 : 0 <= Du by rewrite subr_ge0 uc.
have head t : t * Du <= D -> slope (sb F t) a j <= slope (sb F t) j b.
  by move=> h; rewrite !slope_sub; apply: (ler_from h); rewrite /D /Du; ring.
have [h|h] := leP (t1 * Du) D.
  split=> //; first by apply/andP; split; [apply: head|].
  by case: kept tight => [L'|] //= rL; apply: rm_next.
have Du1 : 0 < Du.
  rewrite lt_neqAle Du0 andbT; apply: contraTneq h => <-.
  by rewrite mulr0 -leNgt.
set t := D / Du; have tD : t * Du = D by rewrite divfK // gt_eqF.
have t0 : 0 <= t by rewrite divr_ge0.
have tt1 : t <= t1 by rewrite ler_pdivr_mulr // ltW.
split=> //; first exact: le_trans tt1 t1r.
  apply/andP; split; first by apply: head; rewrite tD.
  exact: convex_le lj pj tt1 c1.
apply: rm_here; rewrite !slope_sub; apply/eqP.
rewrite -subr_eq0; apply/eqP.
have -> : slope F a j - t * slope u a j - (slope F j b - t * slope u j b) = t * Du - D.
  by rewrite /D /Du; ring.
by rewrite tD subrr.
Qed.

(* a convex nonnegative function vanishing at both ends is zero *)
Lemma nondecr g a L : path <%R a L -> all (fun s => 0 <= s) (slopes g a L) ->
  g a <= g (last a L).
Proof.
elim: L a => [|b L IH] a //= /andP[ab pL] /andP[s0 sL].
apply: le_trans (IH b pL sL); rewrite (slopeE g ab) ler_addl.
by rewrite mulr_ge0 // subr_ge0 ltW.
Qed.

Lemma convex_zero g a L : path <%R a L -> convex_on g a L ->
  g a = 0 -> g (last a L) = 0 -> (forall x, x \in L -> 0 <= g x) ->
  forall x, x \in L -> g x = 0.
Proof.
elim: L a => [|b L IH] a //= /andP[ab pL] cL ga gl pos x.
have gb : g b = 0.
  apply/eqP; rewrite eq_le pos ?mem_head // andbT leNgt; apply/negP => gb.
  have s0 : 0 < slope g a b by rewrite /slope ga subr0 divr_gt0 // subr_gt0.
  have := cL; rewrite /convex_on /= (path_sortedE (@le_trans _ _)) => /andP[al _].
  have : g b <= g (last b L).
    by apply: nondecr => //; apply: sub_all al => s; apply: le_trans (ltW s0).
  by rewrite gl leNgt gb.
rewrite inE => /orP[/eqP -> //|xL]; apply: (IH b) => //.
  by move: cL; rewrite /convex_on /= => /path_sorted.
by move=> y yL; apply: pos; rewrite inE yL orbT.
Qed.

Lemma interp0 g a L x : g a = 0 -> (forall y, y \in L -> g y = 0) -> interp g a L x = 0.
Proof.
elim: L a => [|b L IH] a //= ga gL; have gb : g b = 0 by apply: gL; rewrite mem_head.
case: ifP => _; first by rewrite /chord /slope ga gb subrr !mul0r addr0.
by apply: IH => // y yL; apply: gL; rewrite inE yL orbT.
Qed.


Lemma u_chord a b x : lo <= a -> a < b -> a <= x -> x <= b -> u x <= chord u a b x.
Proof.
move=> la ab; rewrite le_eqVlt => /orP[/eqP <- _|ax].
  by rewrite /chord subrr mulr0 addr0.
rewrite le_eqVlt => /orP[/eqP ->|xb]; first by rewrite /chord -slopeE.
rewrite (slopeE u ax) /chord ler_add2l ler_wpmul2r ?subr_ge0 ?(ltW ax) //.
have h := uc la ax xb.
rewrite {2}/slope ler_pdivl_mulr ?subr_gt0 // (slopeE u xb) (slopeE u ax).
have h2 : slope u a x * (b - x) <= slope u x b * (b - x).
  by rewrite ler_wpmul2r // subr_ge0 ltW.
by apply: (ler_from h2); ring.
Qed.

Lemma u_below a L x : lo <= a -> path <%R a L -> a <= x -> x <= last a L ->
  u x <= interp u a L x.
Proof.
elim: L a => [|b L IH] a la /=.
  by move=> _ ax xa; have -> : x = a by apply/eqP; rewrite eq_le xa ax.
move=> /andP[ab pL] ax xl; case: (leP x b) => xb; first exact: u_chord.
by apply: IH => //; [exact: le_trans la (ltW ab) | exact: ltW].
Qed.

Lemma interp_vertex g a L x : path <%R a L -> x \in a :: L -> interp g a L x = g x.
Proof.
elim: L a => [|b L IH] a /=; first by rewrite inE => _ /eqP ->.
move=> /andP[ab pL]; rewrite inE => /orP[/eqP ->|xL].
  by rewrite ltW // /chord subrr mulr0 addr0.
have bx : b <= x.
  move: xL; rewrite inE => /orP[/eqP -> //|xL].
  by move: pL; rewrite (path_sortedE lt_trans) => /andP[/allP/(_ x xL)/ltW].
case: (leP x b) => xb; last exact: IH.
have -> : x = b by apply/eqP; rewrite eq_le xb bx.
by rewrite /chord -slopeE.
Qed.

(** [A] carries the lower convex envelope of [F] over the points [L0] *)
Definition envelope F a L0 A : Prop :=
  convex_on F a A /\ forall x, x \in L0 -> interp F a A x <= F x.

(** The [k]-th list of vertices carries the envelope of F - t u for every t between the sum
   of the earlier weights and the sum of the weights up to k *)
Fixpoint env_process F a L0 s (ws : seq (R * seq R)) : Prop :=
  if ws is w :: ws' then
    (forall t, s <= t -> t <= s + w.1 -> envelope (sb F t) a L0 w.2)
    /\ env_process F a L0 (s + w.1) ws'
  else True.

Theorem merging m F0 L0 F s r a L : lo <= a -> path <%R a L -> 0 <= r ->
  (forall x, F x = F0 x - s * u x) ->
  (forall x, x \in L0 -> a <= x <= last a L) -> {subset L <= L0} ->
  envelope F a L0 L ->
  (forall x, x \in L -> r * u x <= F x) ->
  F a = r * u a -> F (last a L) = r * u (last a L) ->
  (size L < m)%N -> let ws := merges m F r a L in
   [/\ forall w, w \in ws -> 0 <= w.1,
       \sum_(w <- ws) w.1 = r,
       forall w, w \in ws -> subseq w.2 L /\ last a w.2 = last a L,
       env_process F0 a L0 s ws
     & forall x, interp F a L x = \sum_(w <- ws) w.1 * interp u a w.2 x].
Proof.
elim: m => // m IH in F s r a L *.
move=> la pL r0 FE bnd sub [cF eF] ge Fa Fl; rewrite ltnS => sz.
have := first_deathP la pL r0 cF; rewrite [merges _ _ _ _ _]/=.
move: (first_death F r a L) => [t kept] [t0 tr ct tight].
have sbE t' x : sb F t' x = sb F0 (s + t') x by rewrite /sb FE; ring.
have slE g1 g2 c M : g1 =1 g2 -> slopes g1 c M = slopes g2 c M.
  by move=> e; elim: M c => //= b M IHM c; rewrite /slope !e IHM.
have inE' g1 g2 c M x : g1 =1 g2 -> interp g1 c M x = interp g2 c M x.
  by move=> e; elim: M c => //= b M IHM c; rewrite /chord /slope !e IHM.
have env : forall t', s <= t' -> t' <= s + t -> envelope (sb F0 t') a L0 L.
  move=> t' h1 h2; have E : sb F0 t' =1 sb F (t' - s).
    by move=> x; rewrite sbE addrC subrK.
  split=> [|x xL0].
    rewrite /convex_on (slE _ _ _ _ E); apply: convex_le la pL _ ct.
    by rewrite ler_subl_addl.
  rewrite (inE' _ _ _ _ _ E) E.
  have h3 : interp (sb F (t' - s)) a L x = interp F a L x - (t' - s) * interp u a L x.
    by rewrite (interp_sub F u (t' - s)) addrK.
  rewrite h3 /sb ler_sub ?eF // ler_wpmul2l ?subr_ge0 //.
  by have /andP[] := bnd x xL0; apply: u_below.
case: kept tight => [L'|] => [rL|te]; last first.
  split=> [w||||x].
  - by rewrite inE => /eqP ->.
  - by rewrite big_seq1.
  - by move=> w; rewrite inE => /eqP ->.
  - by split=> //=; rewrite -te.
  rewrite big_seq1 /= (interp_sub F u r) interp0 ?add0r //; first by rewrite Fa subrr.
  rewrite te in ct; apply: (convex_zero pL ct); rewrite /sb ?Fa ?Fl ?subrr //.
  by move=> y yL; rewrite subr_ge0 ge.
have sL := rm_subseq rL; have lL := rm_last rL.
have pL' : path <%R a L'.
  by apply: subseq_path pL => //; apply: lt_trans.
have [|||||||||||w0 w1 w2 w4 w3] := IH (sb F t) (s + t) (r - t) a L'; try by [].
- by rewrite subr_ge0.
- by move=> x; rewrite sbE.
- by move=> x /bnd; rewrite lL.
- by move=> x /(mem_subseq sL)/sub.
- split; first by apply: subseq_sorted ct; [exact: le_trans | exact: rm_slopes].
  move=> x xL0; rewrite -(rm_interp x pL rL).
  have [|| _ h] := env (s + t); rewrite ?ler_addl ?lexx //.
  by rewrite sbE (inE' _ _ _ _ _ (sbE t)); apply: h.
- move=> x /(mem_subseq sL) xL; rewrite /sb mulrBl ler_sub //; exact: ge.
- by rewrite /sb Fa mulrBl.
- by rewrite lL /sb Fl mulrBl.
- by rewrite -(rm_size rL).
split=> [w||w||x].
- by rewrite inE => /orP[/eqP -> //|/w0].
- by rewrite big_cons w1 /= addrC subrK.
- rewrite inE => /orP[/eqP -> //|/w2[h1 h2]]; split; last by rewrite h2.
  exact: subseq_trans sL.
- by split.
by rewrite big_cons /= (interp_sub F u t) (rm_interp x pL rL) w3 addrC.
Qed.

End Process.

Lemma chordE g a b x : a < b -> chord g a b x = (g a * (b - x) + g b * (x - a)) / (b - a).
Proof.
move=> ab; have ba : b - a != 0 by rewrite subr_eq0 gt_eqF.
apply: (mulIf ba); rewrite divfK // /chord /slope mulrDl [_ / _ * _ * _]mulrAC divfK //.
ring.
Qed.

Lemma interp_le g1 g2 a L x : path <%R a L -> a <= x -> x <= last a L ->
  (forall y, y \in a :: L -> g1 y <= g2 y) -> interp g1 a L x <= interp g2 a L x.
Proof.
elim: L a => [|b L IH] a /=; first by move=> _ _ _; apply; rewrite mem_head.
move=> /andP[ab pL] ax xl le; case: (leP x b) => xb.
  rewrite !chordE // ler_wpmul2r ?invr_ge0 ?subr_ge0 ?(ltW ab) //.
  by rewrite ler_add // ler_wpmul2r ?subr_ge0 // le // !inE eqxx ?orbT.
by apply: IH => // [|y yL]; [exact: ltW | apply: le; rewrite inE yL orbT].
Qed.

(** The envelope is the lower convex envelope: no convex function that is below F at
    the points is above it anywhere. *)
Theorem envelope_greatest F G a L0 A :
  (forall x y z, a <= x -> x < y -> y < z -> slope G x y <= slope G y z) ->
  path <%R a A -> {subset a :: A <= L0} -> (forall x, x \in L0 -> G x <= F x) ->
  forall x, a <= x -> x <= last a A -> G x <= interp F a A x.
Proof.
move=> Gc pA sub GF x ax xl; apply: le_trans (u_below Gc (lexx a) pA ax xl) _.
by apply: interp_le => // y /sub/GF.
Qed.

(* x^n is convex on x >= 0 *)
Lemma slope_exp n x y z : 0 <= x -> x < y -> y < z ->
  slope (fun x => x ^+ n) x y <= slope (fun x => x ^+ n) y z.
Proof.
move=> x0 xy yz; have y0 := le_trans x0 (ltW xy); have z0 := le_trans y0 (ltW yz).
rewrite /slope !subrXX [X in X <= _]mulrAC [X in _ <= X]mulrAC.
rewrite !divff ?subr_eq0 ?gt_eqF // !mul1r.
apply: ler_sum => i _; apply: ler_pmul; rewrite ?exprn_ge0 //.
  by apply: ler_expn2r; rewrite ?nnegrE // ltW.
by apply: ler_expn2r; rewrite ?nnegrE // ltW.
Qed.

(** The process of T - s x^n on the points L, for s from 0 to 1. *)
Definition power_merges n (T : R -> R) L : seq (R * seq R) :=
  merges (fun x => x ^+ n) (size L).+1 T 1 0 L.

(** It follows the lower convex envelopes, and T is the sum over it of duration times
    the interpolation of x^n on the vertices: the integral over s in [0, 1]. *)
Theorem optimal_iid_envelope n (T : R -> R) L : (0 < n)%N ->
  path <%R 0 L -> last 0 L = 1 -> convex_on T 0 L ->
  (forall x, x \in L -> x ^+ n <= T x) -> T 0 = 0 -> T 1 = 1 ->
  let ws := power_merges n T L in
   [/\ forall w, w \in ws -> 0 <= w.1,
       \sum_(w <- ws) w.1 = 1,
       forall w, w \in ws -> subseq w.2 L /\ last 0 w.2 = 1,
       env_process (fun x => x ^+ n) T 0 L 0 ws
     & forall x, x \in L -> T x
        = \sum_(w <- ws) w.1 * interp (fun x => x ^+ n) 0 w.2 x].
Proof.
move=> n0 pL lL cT ge T0 T1.
have [|||||||| w0 w1 w2 w4 w3] :=
  @merging _ 0 (@slope_exp n) (size L).+1 T L T 0 1 0 L (lexx 0) pL ler01.
- by move=> x; rewrite mul0r subr0.
- move=> x xL; rewrite lL.
  have x0 : 0 <= x by move: pL; rewrite (path_sortedE lt_trans) => /andP[/allP/(_ x xL)/ltW].
  rewrite x0 -lL; move: (pL); rewrite lt_path_sortedE => /andP[_ sL].
  case/splitPr: xL sL lL => [L1 L2]; rewrite last_cat /= => sL _.
  move: sL => /cat_sorted2[_] /=.
  case: (lastP L2) => [//|L3 z]; rewrite last_rcons => h.
  move: h; rewrite (path_sortedE lt_trans) => /andP[/allP/(_ z) h _].
  by apply/ltW/h; rewrite mem_rcons mem_head.
- by [].
- by split=> // x xL; rewrite interp_vertex // inE xL orbT.
- by move=> x xL; rewrite mul1r ge.
- by rewrite T0 expr0n eqn0Ngt n0 mulr0.
- by rewrite lL T1 expr1n mulr1.
- exact: ltnSn.
split=> // [w /w2|x xL]; first by rewrite lL.
by rewrite -w3 interp_vertex // inE xL orbT.
Qed.

End Merge.
