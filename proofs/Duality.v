(** * The optimum is a subset selection (theory, section 1; [1], sec. 3).

    Weak duality, strong duality through a weighted Hall theorem, and what they
    say about verifiers: the best acceptance rate is 1 + min over H of P(H) - Q(H),
    and a coupling that meets a set H is a certificate of optimality. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** ** The bound *)
Section Weak.
Variables (R : realFieldType) (V : finType) (n : nat) (pd : n.-tuple V -> R) (p : V -> R).

(** Any set H bounds the acceptance of any coupling. *)
Theorem weak_duality pi (H : {set V}) :
  is_dist pd -> coupling pd p pi -> coupling_acceptance pi <= 1 + mass p H - qmass pd H.
Proof.
move=> [_ pd1] [pi0 m1 m2].
have -> : mass p H = \sum_s \sum_(i in H) pi s i.
  by rewrite /mass exchange_big /=; apply: eq_bigr => i _; rewrite m2.
have e : 1 = qmass pd H + \sum_(s : n.-tuple V | ~~ all (mem H) s) pd s.
  by rewrite -pd1 (bigID (fun s : n.-tuple V => all (mem H) s)).
rewrite [X in X + _ - _]e (_ : forall a b c : R, a + b + c - a = c + b); last first.
  by move=> a b c; ring.
rewrite [X in _ <= _ + X]big_mkcond -big_split /=.
apply: ler_sum => s _; case: ifPn => [sH|sH].
  rewrite -[X in X <= _]add0r ler_add ?sumr_ge0 //.
  by rewrite -m1; apply: ler_sum_subset.
rewrite addr0; apply: ler_sum_subset => // i.
by move: sH; rewrite negbK => /allP; apply.
Qed.

(** Any set H bounds the acceptance of any lossless verifier. *)
Theorem acceptance_bound k (H : {set V}) :
  is_dist pd -> lossless pd p k -> acceptance pd k <= 1 + mass p H - qmass pd H.
Proof.
move=> dd lk; rewrite -acceptance_joint.
exact: weak_duality dd (lossless_coupling dd lk).
Qed.

End Weak.

(** ** A weighted Hall theorem (Halmos and Vaughan, with real weights) *)
Section Hall.
Variables (R : realFieldType) (S T : finType) (E : S -> {set T}).
Implicit Types (a : S -> R) (b : T -> R) (H : {set T}).

Definition sup a H : R := \sum_(s | E s \subset H) a s.

Definition hall_cond a b : Prop := forall H, sup a H <= mass b H.

Definition transport a b (f : S -> T -> R) : Prop :=
  [/\ forall s i, 0 <= f s i,
      forall s i, i \notin E s -> f s i = 0,
      forall s, \sum_i f s i = a s
    & forall i, \sum_s f s i <= b i].

Definition weight a b : nat := (#|[set s | a s != 0%R]| + #|[set i | b i != 0%R]|)%N.

Lemma weight_lt a b a' b' :
  (forall s, a s = 0 -> a' s = 0) -> (forall i, b i = 0 -> b' i = 0) ->
  (exists s, a s != 0 /\ a' s = 0) \/ (exists i, b i != 0 /\ b' i = 0) ->
  (weight a' b' < weight a b)%N.
Proof.
move=> ha hb h; rewrite /weight.
have sa : [set s | a' s != 0] \subset [set s | a s != 0].
  by apply/subsetP => s; rewrite !inE; apply: contra => /eqP/ha->.
have sb : [set s | b' s != 0] \subset [set s | b s != 0].
  by apply/subsetP => s; rewrite !inE; apply: contra => /eqP/hb->.
case: h => [[s [h1 h2]]|[i [h1 h2]]].
  rewrite -addSn leq_add ?subset_leq_card //; apply: proper_card.
  by apply/properP; split=> //; exists s; rewrite inE ?h1 // h2 eqxx.
rewrite -addnS leq_add ?subset_leq_card //; apply: proper_card.
by apply/properP; split=> //; exists i; rewrite inE ?h1 // h2 eqxx.
Qed.

Lemma transport_add a1 b1 f1 a2 b2 f2 a b :
  transport a1 b1 f1 -> transport a2 b2 f2 ->
  (forall s, a1 s + a2 s = a s) -> (forall i, b1 i + b2 i = b i) ->
  transport a b (fun s i => f1 s i + f2 s i).
Proof.
move=> [p1 z1 r1 c1] [p2 z2 r2 c2] ea eb; split=> [s i|s i h|s|i].
- by rewrite addr_ge0.
- by rewrite z1 // z2 // addr0.
- by rewrite big_split /= r1 r2.
- by rewrite big_split /= -eb ler_add.
Qed.

Theorem weighted_hall a b :
  (forall s, 0 <= a s) -> (forall i, 0 <= b i) -> hall_cond a b ->
  exists f, transport a b f.
Proof.
have [m] := ubnP (weight a b); elim: m => // m IH in a b *.
rewrite ltnS => wm a0 b0 hc.
have [/existsP[s0 as0]|nex] := boolP [exists s, a s != 0]; last first.
  have az s : a s = 0 by move/existsPn/(_ s): nex; rewrite negbK => /eqP.
  by exists (fun _ _ => 0); split=> // [s|i]; rewrite big1 ?az.
have as0p : 0 < a s0 by rewrite lt_neqAle eq_sym as0 a0.
have [i0 i0E bi0] : exists2 i0, i0 \in E s0 & b i0 != 0.
  case: (boolP [exists i in E s0, b i != 0]) => [/exists_inP //|/exists_inPn nb].
  have := hc (E s0); rewrite /mass big1 => [|i /nb]; last by rewrite negbK => /eqP.
  have h : a s0 <= sup a (E s0) by rewrite /sup (bigD1 s0) //= ler_addl sumr_ge0.
  by move=> /(le_trans h); rewrite leNgt as0p.
have bi0p : 0 < b i0 by rewrite lt_neqAle eq_sym bi0 b0.
pose P H := (i0 \in H) && ~~ (E s0 \subset H).
pose g H := mass b H - sup a H.
pose da e s : R := if s == s0 then e else 0.
pose db e i : R := if i == i0 then e else 0.
pose a' e s := a s - da e s; pose b' e i := b i - db e i.
have sup' e H : sup (a' e) H = sup a H - (if E s0 \subset H then e else 0).
  by rewrite /sup sumrB /da sum_delta.
have mass' e H : mass (b' e) H = mass b H - (if i0 \in H then e else 0).
  by rewrite /mass sumrB /db sum_delta.
have a'0 e : e <= a s0 -> forall s, 0 <= a' e s.
  by move=> le s; rewrite /a' /da; case: eqP => [->|_]; rewrite ?subr0 // subr_ge0.
have b'0 e : e <= b i0 -> forall i, 0 <= b' e i.
  by move=> le s; rewrite /b' /db; case: eqP => [->|_]; rewrite ?subr0 // subr_ge0.
have a'z e s : a s = 0 -> a' e s = 0.
  by move=> z; rewrite /a' /da; case: eqP => [e0|_]; [move: as0; rewrite -e0 z eqxx | rewrite z subr0].
have b'z e s : b s = 0 -> b' e s = 0.
  by move=> z; rewrite /b' /db; case: eqP => [e0|_]; [move: bi0; rewrite -e0 z eqxx | rewrite z subr0].
have hc' e : 0 <= e -> (forall H, P H -> e <= g H) -> hall_cond (a' e) (b' e).
  move=> e0 hP H; rewrite sup' mass'; case: ifPn => [sH|sH].
    by rewrite (subsetP sH) // ler_sub.
  case: ifPn => [iH|_]; rewrite !subr0 //.
  have /hP : P H by rewrite /P iH.
  by move=> h; apply: (ler_from h); rewrite /g; ring.
have lift e : 0 <= e -> (exists f, transport (a' e) (b' e) f) -> exists f, transport a b f.
  move=> e0 [f tf]; pose d s i : R := if s == s0 then (if i == i0 then e else 0) else 0.
  have td : transport (da e) (db e) d.
    split=> [s i|s i|s|i]; rewrite /d /da /db.
    - by case: ifP => // _; case: ifP.
    - by case: eqP => // ->; case: eqP => // ->; rewrite i0E.
    - by case: ifP => _; rewrite ?sum_delta // big1.
    - rewrite sum_delta /=; by case: ifP.
  exists (fun s i => f s i + d s i).
  by apply: (transport_add tf td) => j; rewrite subrK.
pose e0 := Num.min (a s0) (b i0).
have e0a : e0 <= a s0 by rewrite le_minl lexx.
have e0b : e0 <= b i0 by rewrite le_minl lexx orbT.
have e0p : 0 <= e0 by rewrite le_minr a0 b0.
have [/forallP hP|nhP] := boolP [forall H, P H ==> (e0 <= g H)].
  apply: (lift e0) => //; apply: IH; try by [exact: a'0 | exact: b'0].
    apply: leq_trans wm; apply: weight_lt; [exact: a'z|exact: b'z|].
    have [h|h] := leP (a s0) (b i0).
      by left; exists s0; rewrite as0 /a' /da eqxx /e0 (min_idPl h) subrr.
    by right; exists i0; rewrite bi0 /b' /db eqxx /e0 (min_idPr (ltW h)) subrr.
  by apply: hc' => // H PH; apply: (implyP (hP H)).
have [H1 PH1 gH1] : exists2 H, P H & g H < e0.
  by move: nhP => /forallPn[H]; rewrite negb_imply -ltNge => /andP[h1 h2]; exists H.
have [H0 PH0 H0min] := arg_minP g (i0 := H1) (P := P) PH1.
pose e := g H0.
have ee0 : e <= e0 by apply: le_trans (H0min _ PH1) (ltW gH1).
have ep : 0 <= e by rewrite subr_ge0.
have ea := le_trans ee0 e0a; have eb := le_trans ee0 e0b.
have hce : hall_cond (a' e) (b' e) by apply: hc' => // H; apply: H0min.
have /andP[iH0 sH0] := PH0.
have tight : sup (a' e) H0 = mass (b' e) H0.
  by rewrite sup' mass' iH0 (negbTE sH0) /e /g; ring.
apply: (lift e) => //.
pose a1 s := if E s \subset H0 then a' e s else 0.
pose a2 s := if E s \subset H0 then 0 else a' e s.
pose b1 i := if i \in H0 then b' e i else 0.
pose b2 i := if i \in H0 then 0 else b' e i.
have [f1 t1] : exists f, transport a1 b1 f.
  apply: IH => [|s|i|H].
  - apply: leq_trans wm; apply: weight_lt => [s z|i z|].
    + by rewrite /a1 a'z //; case: ifP.
    + by rewrite /b1 b'z //; case: ifP.
    + by left; exists s0; rewrite as0 /a1 (negbTE sH0).
  - by rewrite /a1; case: ifP => // _; apply: a'0.
  - by rewrite /b1; case: ifP => // _; apply: b'0.
  - have := hce (H :&: H0); rewrite /sup /mass /a1 /b1 -!big_mkcondr.
    rewrite (eq_bigl (fun s => (E s \subset H) && (E s \subset H0))) => [|s]; last by rewrite subsetI.
    by rewrite [X in _ <= X](eq_bigl (fun i => (i \in H) && (i \in H0))) // => i; rewrite inE.
have [f2 t2] : exists f, transport a2 b2 f.
  apply: IH => [|s|i|H].
  - apply: leq_trans wm; apply: weight_lt => [s z|i z|].
    + by rewrite /a2 a'z //; case: ifP.
    + by rewrite /b2 b'z //; case: ifP.
    + by right; exists i0; rewrite bi0 /b2 iH0.
  - by rewrite /a2; case: ifP => // _; apply: a'0.
  - by rewrite /b2; case: ifP => // _; apply: b'0.
  - have hU := hce (H :|: H0).
    have m2 : mass (b' e) (H :|: H0) = mass (b' e) H0 + mass b2 H.
      rewrite {1}/mass (bigID (mem H0)) /=; congr (_ + _).
        by apply: eq_bigl => i; rewrite inE; case: (i \in H0); rewrite ?andbF ?orbT.
      rewrite /mass [RHS](eq_bigr (fun i => if i \notin H0 then b' e i else 0)); last first.
        by move=> i _; rewrite /b2; case: (i \in H0).
      rewrite -big_mkcondr; apply: eq_bigl => i; rewrite inE.
      by case: (i \in H0); rewrite ?andbF ?orbF ?andbT.
    have s2 : sup (a' e) H0 + sup a2 H <= sup (a' e) (H :|: H0).
      rewrite [X in _ <= X](bigID (fun s => E s \subset H0)) /=; apply: ler_add.
        apply: ler_sum_subset; last exact: a'0.
        by move=> s h; rewrite h andbT; apply: subset_trans h (subsetUr _ _).
      rewrite /sup (eq_bigr (fun s => if ~~ (E s \subset H0) then a' e s else 0)); last first.
        by move=> s _; rewrite /a2; case: (E s \subset H0).
      rewrite -big_mkcondr; apply: ler_sum_subset; last exact: a'0.
      by move=> s /andP[h ->]; rewrite (subset_trans h (subsetUl _ _)).
    have := le_trans s2 hU; rewrite m2 tight.
    by rewrite ler_add2l.
exists (fun s i => f1 s i + f2 s i); apply: (transport_add t1 t2) => j.
  by rewrite /a1 /a2; case: ifP => _; rewrite ?addr0 ?add0r.
by rewrite /b1 /b2; case: ifP => _; rewrite ?addr0 ?add0r.
Qed.

End Hall.

(** ** Strong duality *)
Section Strong.
Variables (R : realFieldType) (V : finType).
Implicit Types (p : V -> R) (H : {set V}).

(** A coupling attains the bound of some set H, which minimises P - Q. *)
Theorem strong_duality n (pd : n.-tuple V -> R) p :
  is_dist pd -> is_dist p ->
  exists pi H, [/\ coupling pd p pi,
    coupling_acceptance pi = 1 + mass p H - qmass pd H
  & forall H', mass p H - qmass pd H <= mass p H' - qmass pd H'].
Proof.
move=> dd dp; have [pd0 pd1] := dd; have [p0 p1] := dp.
have [H _ Hmin] := arg_minP (fun H => mass p H - qmass pd H) (i0 := set0) (P := xpredT) isT.
pose D := qmass pd H - mass p H.
have D0 : 0 <= D.
  rewrite subr_ge0 -subr_le0; apply: le_trans (Hmin set0 isT) _.
  by rewrite mass0 sub0r oppr_le0 sumr_ge0.
pose E (s : n.-tuple V) : {set option V} := [set o | if o is Some i then i \in s else true].
pose b (o : option V) : R := if o is Some i then p i else D.
have b0 o : 0 <= b o by case: o.
have hc : hall_cond E pd b.
  move=> K; rewrite /sup /mass sum_option /=; case: ifPn => NK; last first.
    rewrite big_pred0 ?add0r ?sumr_ge0 // => s; apply/negbTE.
    by apply: contra NK => /subsetP; apply; rewrite inE.
  have -> : \sum_(s | E s \subset K) pd s = qmass pd [set i | Some i \in K].
    apply: eq_bigl => s; apply/subsetP/allP => [h i si|h [i|]] //=.
      by rewrite /= inE; apply: h; rewrite inE.
    by rewrite inE => /h; rewrite /= inE.
  have := Hmin [set i | Some i \in K] isT.
  have -> : mass p [set i | Some i \in K] = \sum_(i | Some i \in K) p i.
    by apply: eq_bigl => i; rewrite inE.
  have aux (x y u w : R) : x - y <= u - w -> w <= y - x + u.
    by move=> h; apply: (ler_from h); ring.
  exact: aux.
have [f [f0 fz fr fc]] := weighted_hall pd0 b0 hc.
pose F i := \sum_s f s (Some i); pose d := \sum_s f s None.
have FN : d + \sum_i F i = 1.
  rewrite -pd1 exchange_big -big_split /=; apply: eq_bigr => s _.
  by rewrite -fr [RHS](sum_option xpredT).
have Fp i : 0 <= p i - F i by rewrite subr_ge0; apply: (fc (Some i)).
have dE : \sum_i (p i - F i) = d by rewrite sumrB p1 -FN addrK.
have d0 : 0 <= d by apply: sumr_ge0.
have dD : d <= D by apply: (fc None).
have fNz : d = 0 -> forall s, f s None = 0.
  by move=> z s; move/eqP: z; rewrite psumr_eq0 // => /allP/(_ s (mem_index_enum s))/eqP.
have pFz : d = 0 -> forall i, p i - F i = 0.
  rewrite -dE => /eqP z i; move: z.
  by rewrite psumr_eq0 // => /allP/(_ i (mem_index_enum i))/eqP.
pose pi s i := f s (Some i) + f s None * (p i - F i) / d.
have cpl : coupling pd p pi.
  split=> [s i|s|i].
  - by rewrite addr_ge0 ?divr_ge0 ?mulr_ge0.
  - rewrite big_split /= -mulr_suml -mulr_sumr dE -fr (sum_option xpredT) /= addrC.
    congr (_ + _); case: (eqVneq d 0) => [z|nz]; first by rewrite (fNz z) !mul0r.
    by rewrite mulfK.
  - rewrite big_split /= -mulr_suml -mulr_suml -/d -/(F i).
    case: (eqVneq d 0) => [z|nz]; last by rewrite mulrAC divff // mul1r addrC subrK.
    by rewrite z !mul0r addr0; apply/esym/eqP; rewrite -subr_eq0 (pFz z).
have fS (s : n.-tuple V) : \sum_(i | i \in s) f s (Some i) = \sum_i f s (Some i).
  rewrite big_mkcond; apply: eq_bigr => i _; case: ifPn => // h.
  by rewrite fz // inE.
have ge : 1 + mass p H - qmass pd H <= coupling_acceptance pi.
  have h : 1 - d <= coupling_acceptance pi.
    have -> : 1 - d = \sum_(s : n.-tuple V) \sum_(i | i \in s) f s (Some i).
      by rewrite (eq_bigr _ (fun s _ => fS s)) exchange_big -FN addrAC subrr add0r.
    apply: ler_sum => s _; apply: ler_sum => i _.
    by rewrite ler_addl ?divr_ge0 ?mulr_ge0.
  apply: le_trans h; apply: (ler_from dD); rewrite /D; ring.
exists pi, H; split=> //; last by move=> H'; apply: Hmin.
by apply/eqP; rewrite eq_le ge weak_duality.
Qed.

End Strong.

(** ** The optimal acceptance rate *)
Section Optimum.
Variables (R : realFieldType) (V : finType) (n : nat) (pd : n.-tuple V -> R) (p : V -> R).
Hypotheses (dd : is_dist pd) (dp : is_dist p).

(** alpha* = 1 + min over all sets H of P(H) - Q(H).  The minimum is at most 0, the
    value at the full set. *)
Definition optimal_acceptance : R :=
  1 + \big[Num.min/0]_(H : {set V}) (mass p H - qmass pd H).

Lemma optimal_acceptance_le H : optimal_acceptance <= 1 + mass p H - qmass pd H.
Proof.
rewrite /optimal_acceptance -addrA ler_add2l.
by apply: bigmin_le; rewrite mem_index_enum.
Qed.

Lemma optimal_acceptance_mem : exists H, optimal_acceptance = 1 + mass p H - qmass pd H.
Proof.
rewrite /optimal_acceptance.
have [->|[H _ ->]] := bigmin_mem (fun H => mass p H - qmass pd H) 0 (index_enum [finType of {set V}]).
  by exists setT; rewrite massT qmassT (proj2 dd) (proj2 dp) addrK addr0.
by exists H; rewrite addrA.
Qed.

(** It bounds every lossless verifier ... *)
Theorem acceptance_le_optimal k : lossless pd p k -> acceptance pd k <= optimal_acceptance.
Proof. by move=> lk; have [H ->] := optimal_acceptance_mem; apply: acceptance_bound. Qed.

(** ... and some lossless verifier attains it. *)
Theorem optimal_acceptance_attained :
  exists2 k, lossless pd p k & acceptance pd k = optimal_acceptance.
Proof.
have [pi [H [cpl ae _]]] := strong_duality dd dp.
have [k [lk jk]] := coupling_lossless dp cpl; exists k => //.
apply/eqP; rewrite eq_le acceptance_le_optimal //=.
apply: le_trans (optimal_acceptance_le H) _; rewrite -ae -acceptance_joint le_eqVlt.
apply/orP; left; apply/eqP; apply: eq_bigr => s _; apply: eq_bigr => i _.
by rewrite jk.
Qed.

(** A verifier that meets the bound of one set is optimal. *)
Lemma optimal_acceptance_meet k H : lossless pd p k ->
  1 + mass p H - qmass pd H <= acceptance pd k -> acceptance pd k = optimal_acceptance.
Proof.
move=> lk ge; apply/eqP; rewrite eq_le acceptance_le_optimal //=.
exact: le_trans (optimal_acceptance_le H) ge.
Qed.

(** ** Certificates *)

(** A coupling and a set that meet: what the exact mode checks. *)
Definition certificate (pi : n.-tuple V -> V -> R) (H : {set V}) : bool :=
  [&& [forall s, forall i, 0 <= pi s i],
      [forall s, \sum_i pi s i == pd s],
      [forall i, \sum_s pi s i == p i]
    & coupling_acceptance pi == 1 + mass p H - qmass pd H].

(** A certificate proves optimality of both: no coupling accepts more, and no set
    gives a smaller bound; the common value is alpha*. *)
Theorem certificate_optimal pi H : certificate pi H ->
  [/\ coupling pd p pi,
      coupling_acceptance pi = optimal_acceptance,
      forall pi', coupling pd p pi' -> coupling_acceptance pi' <= coupling_acceptance pi
    & forall H', 1 + mass p H - qmass pd H <= 1 + mass p H' - qmass pd H'].
Proof.
case/and4P=> /forallP pi0 /forallP m1 /forallP m2 /eqP meet.
have cpl : coupling pd p pi.
  by split=> [s i|s|i]; [move/forallP: (pi0 s); apply | apply/eqP/m1 | apply/eqP/m2].
have up pi' H' : coupling pd p pi' -> coupling_acceptance pi' <= 1 + mass p H' - qmass pd H'.
  by apply: weak_duality.
split=> // [|pi' cpl'|H']; last by rewrite -meet; apply: up.
  apply/eqP; rewrite eq_le meet optimal_acceptance_le andbT.
  by have [H' ->] := optimal_acceptance_mem; rewrite -meet; apply: up.
by rewrite meet; apply: up.
Qed.

(** Every instance has a certificate. *)
Theorem certificate_exists : exists pi H, certificate pi H.
Proof.
have [pi [H [[pi0 m1 m2] ae _]]] := strong_duality dd dp; exists pi, H; apply/and4P.
split; last exact/eqP.
- by apply/forallP => s; apply/forallP => i.
- by apply/forallP => s; rewrite m1.
- by apply/forallP => i; rewrite m2.
Qed.

End Optimum.
