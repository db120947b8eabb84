(** * K-SEQ (theory, section 4; [2]): i.i.d. drafts, each accepted with
    min(1, p / (gamma q)), else the residual (p - gamma q)_+ normalised.

    gamma is a fixed point of 1 - (1 - b(gamma))^n = gamma b(gamma). *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions Duality WithReplacement SingleDraft RecursiveRejection.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section KSeq.
Variables (R : realFieldType) (V : finType) (p q : V -> R) (g : R).

(** b(gamma) = sum min(q, p / gamma): the chance that one draft is accepted. *)
Definition kseq_b : R := \sum_i Num.min (q i) (p i / g).

Definition scaled (v : V) : R := g * q v.

Fixpoint kseq (s : seq V) : V -> R :=
  if s is x :: s' then accept_or (accept p scaled) (kseq s') x else residual p scaled.

(** The equation of gamma for [n] drafts. *)
Definition kseq_fixed_point n : Prop := 1 - (1 - kseq_b) ^+ n = g * kseq_b.

Hypotheses (dp : is_dist p) (dq : is_dist q) (g0 : 0 < g).

Let p0 i : 0 <= p i. Proof. by case: dp. Qed.
Let q0 i : 0 <= q i. Proof. by case: dq. Qed.
Let sc0 i : 0 <= scaled i. Proof. by rewrite mulr_ge0 // ltW. Qed.
Notation acc := (accept p scaled).
Notation b := kseq_b.

Lemma kseq_acceptE i : q i * acc i = Num.min (q i) (p i / g).
Proof.
apply: (mulfI (lt0r_neq0 g0)); rewrite mulrA -/(scaled i) acceptE //.
by rewrite minr_pmulr ?ltW // [g * (_ / g)]mulrC divfK ?lt0r_neq0.
Qed.

Lemma kseq_bE : \sum_i q i * acc i = b.
Proof. by apply: eq_bigr => i _; apply: kseq_acceptE. Qed.

Lemma kseq_b_ge0 : 0 <= b.
Proof. by apply: sumr_ge0 => i _; rewrite le_minr q0 divr_ge0 // ltW. Qed.

Lemma kseq_b_le1 : b <= 1.
Proof. by case: dq => _ <-; apply: ler_sum => i _; rewrite le_minl lexx. Qed.

Lemma kseq_gb : g * b = \sum_i Num.min (scaled i) (p i).
Proof.
rewrite mulr_sumr; apply: eq_bigr => i _.
by rewrite minr_pmulr ?ltW // [g * (_ / g)]mulrC divfK ?lt0r_neq0.
Qed.

Lemma kseq_dist s : is_dist (kseq s).
Proof.
elim: s => [|x s IH] /=; first exact: residual_dist.
by apply: accept_or_dist IH; [exact: accept_ge0|exact: accept_le1].
Qed.

Definition geometric n : R := \sum_(l < n) (1 - b) ^+ l.

Lemma geometricS n : geometric n.+1 = 1 + (1 - b) * geometric n.
Proof.
rewrite /geometric big_ord_recl expr0; congr (_ + _).
by rewrite big_distrr /=; apply: eq_bigr => i _; rewrite -exprS.
Qed.

Lemma geometric_b n : geometric n * b = 1 - (1 - b) ^+ n.
Proof.
by elim: n => [|n IH]; [rewrite /geometric big_ord0 expr0; ring | rewrite geometricS mulrDl -mulrA IH exprS; ring].
Qed.

Lemma iid_cons n (F : n.+1.-tuple V -> R) :
  \sum_(s : n.+1.-tuple V) iid q s * F s
  = \sum_x q x * \sum_(s : n.-tuple V) iid q s * F [tuple of x :: s].
Proof.
rewrite sum_tuple_cons; apply: eq_bigr => x _; rewrite mulr_sumr.
by apply: eq_bigr => s _; rewrite /iid big_cons mulrA.
Qed.

Lemma iid_total n : \sum_(s : n.-tuple V) iid q s = 1.
Proof. by case: (iid_dist n dq). Qed.

Lemma kseq_law_gen n j :
  \sum_(s : n.-tuple V) iid q s * kseq s j
  = q j * acc j * geometric n + (1 - b) ^+ n * residual p scaled j.
Proof.
elim: n => [|n IH].
  by rewrite sum_tuple0 /geometric big_ord0 /iid big_nil expr0 /=; ring.
rewrite iid_cons.
rewrite (eq_bigr (fun x => q x * accept_or acc (fun j => \sum_(s : n.-tuple V) iid q s * kseq s j) x j)).
  rewrite sum_accept_or sumrB kseq_bE; case: dq => _ ->.
  by rewrite IH geometricS exprS; ring.
move=> x _; congr (_ * _); rewrite /accept_or /=.
rewrite (eq_bigr (fun s : n.-tuple V => acc x * (x == j)%:R * iid q s + (1 - acc x) * (iid q s * kseq s j))).
  by rewrite big_split /= -!mulr_sumr iid_total mulr1.
by move=> s _; rewrite /accept_or; ring.
Qed.

Variable n : nat.
Hypothesis fixed : kseq_fixed_point n.

(** At the fixed point the mass left after n rejections is the residual's: the
    residual is a distribution and no correction is needed. *)
Lemma kseq_rejected : (1 - b) ^+ n = residual_mass p scaled.
Proof.
have -> : (1 - b) ^+ n = 1 - g * b by rewrite -fixed; ring.
rewrite kseq_gb /residual_mass; case: dp => _ <-; rewrite -sumrB.
apply: eq_bigr => i _; rewrite -{1}(min_pos (p i) (scaled i)).
by rewrite addrAC subrr add0r.
Qed.

(** K-SEQ is lossless. *)
Theorem kseq_lossless : lossless (iid q (n := n)) p (fun s : n.-tuple V => kseq s).
Proof.
split=> [s|j]; first exact: kseq_dist.
rewrite /emitted kseq_law_gen kseq_rejected residual_mul -[RHS](min_pos _ (scaled j)).
congr (_ + _); rewrite kseq_acceptE.
have [bz|bnz] := eqVneq b 0.
  have /eqP := bz; rewrite psumr_eq0 => [|i _]; last by rewrite le_minr q0 divr_ge0 // ltW.
  move=> /allP/(_ j (mem_index_enum j))/eqP mj; rewrite mj mul0r.
  by rewrite -acceptE // /scaled -mulrA kseq_acceptE mj mulr0.
have -> : geometric n = g by apply: (mulIf bnz); rewrite geometric_b fixed.
by rewrite mulrC minr_pmulr ?ltW // [g * (_ / g)]mulrC divfK ?lt0r_neq0.
Qed.

(* a rejected token is emitted later only as an accepted draft *)
Lemma kseq_not_again x s : x \notin s -> q x * (1 - acc x) * kseq s x = 0.
Proof.
elim: s => [_|y s IH] /=; last first.
  rewrite inE negb_or => /andP[xy xs]; rewrite /accept_or eq_sym (negbTE xy).
  rewrite mulr0 add0r mulrA [_ * (1 - acc y)]mulrC -mulrA IH ?mulr0 //.
have [rz|rnz] := eqVneq (residual_mass p scaled) 0.
  have b1 : 1 - b = 0 by apply/eqP; move: kseq_rejected; rewrite rz => /eqP; rewrite expf_eq0 => /andP[].
  have : \sum_i (q i - q i * acc i) == 0 by rewrite sumrB kseq_bE; case: dq => _ ->; rewrite b1.
  rewrite psumr_eq0 => [|i _]; last by rewrite kseq_acceptE subr_ge0 le_minl lexx.
  by move=> /allP/(_ x (mem_index_enum x))/eqP; rewrite mulrBr mulr1 => ->; rewrite mul0r.
rewrite /residual (negbTE rnz); have [le|lt] := leP (scaled x) (p x).
  have [qx|qx] := eqVneq (q x) 0; first by rewrite qx !mul0r.
  rewrite /accept (min_idPl _) ?subrr ?mulr0 ?mul0r //.
  have s0 : 0 < scaled x by rewrite mulr_gt0 // lt_neqAle eq_sym qx q0.
  by rewrite ler_pdivl_mulr // mul1r.
by rewrite /pos (max_idPr _) ?mul0r ?mulr0 // subr_le0 ltW.
Qed.

Lemma kseq_acceptance_gen l :
  acceptance (iid q (n := l)) (fun s : l.-tuple V => kseq s) = 1 - (1 - b) ^+ l.
Proof.
elim: l => [|l IH].
  rewrite /acceptance sum_tuple0 /= big_pred0 ?mulr0 => [|i]; first by rewrite expr0 subrr.
  by rewrite in_nil.
rewrite /acceptance iid_cons.
rewrite (eq_bigr (fun x => q x * acc x + (q x - q x * acc x) * (1 - (1 - b) ^+ l))).
  by rewrite big_split /= -mulr_suml sumrB kseq_bE; case: dq => _ ->; rewrite exprS; ring.
move=> x _; rewrite -IH /acceptance.
have e (s : l.-tuple V) : q x * (\sum_(i | i \in x :: s) kseq (x :: s) i)
    = q x * acc x + (q x - q x * acc x) * (\sum_(i | i \in s) kseq s i).
  rewrite /= /accept_or big_split /= -!mulr_sumr.
  have -> : \sum_(i | i \in x :: s) (x == i)%:R = 1 :> R.
    rewrite (bigD1 x) ?mem_head //= eqxx big1 ?addr0 // => i /andP[_ /negbTE].
    by rewrite eq_sym => ->.
  set K := \sum_(i | i \in s) kseq s i; rewrite mulr1.
  have [xs|xs] := boolP (x \in s).
    have -> : \sum_(i | i \in x :: s) kseq s i = K; last by ring.
    by apply: eq_bigl => i; rewrite inE; case: eqP => [->|]; rewrite ?xs.
  have -> : \sum_(i | i \in x :: s) kseq s i = kseq s x + K by rewrite sum_emitted_cons.
  transitivity (q x * acc x + (q x - q x * acc x) * K + q x * (1 - acc x) * kseq s x); first by ring.
  by rewrite kseq_not_again ?addr0.
rewrite mulr_sumr (eq_bigr (fun s : l.-tuple V => iid q s * (q x * acc x)
   + (q x - q x * acc x) * (iid q s * \sum_(i | i \in s) kseq s i))).
  by rewrite big_split /= -mulr_suml iid_total mul1r -mulr_sumr.
by move=> s _; rewrite mulrCA (e s); ring.
Qed.

(** It accepts with probability sum min(gamma q, p). *)
Theorem kseq_acceptance :
  acceptance (iid q (n := n)) (fun s : n.-tuple V => kseq s) = \sum_i Num.min (scaled i) (p i).
Proof. by rewrite kseq_acceptance_gen fixed kseq_gb. Qed.

End KSeq.

(** ** K-SEQ against the optimum *)
Section Ratio.
Variables (R : realFieldType) (V : finType) (p q : V -> R) (n : nat).
Hypotheses (dp : is_dist p) (dq : is_dist q) (n0 : (0 < n)%N).

Let p0 i : 0 <= p i. Proof. by case: dp. Qed.
Let q0 i : 0 <= q i. Proof. by case: dq. Qed.

(* union bound: a token is among n i.i.d. drafts with probability at most n q *)
Lemma drafted_le m i : \sum_(s : m.-tuple V) iid q s * (i \in s)%:R <= m%:R * q i.
Proof.
elim: m => [|m IH]; first by rewrite sum_tuple0 mulr0 mul0r.
rewrite iid_cons.
apply: le_trans (_ : \sum_x q x * ((x == i)%:R + m%:R * q i) <= _).
  apply: ler_sum => x _; rewrite ler_wpmul2l //.
  apply: le_trans (_ : \sum_(s : m.-tuple V) (iid q s * (x == i)%:R + iid q s * (i \in s)%:R) <= _).
    apply: ler_sum => s _; rewrite -mulrDr ler_wpmul2l ?prodr_ge0 //.
    rewrite inE eq_sym -natrD ler_nat.
    by case: (x == i); case: (i \in s).
  by rewrite big_split /= -mulr_suml (proj2 (iid_dist m dq)) mul1r ler_add2l.
rewrite (eq_bigr (fun x => q x * (x == i)%:R + q x * (m%:R * q i))) => [|x _]; last by rewrite mulrDr.
rewrite big_split /= -mulr_suml (proj2 dq) mul1r (bigD1 i) //= eqxx mulr1.
rewrite big1 => [|x /negbTE ->]; last by rewrite mulr0.
by rewrite addr0 -add1n natrD mulrDl mul1r.
Qed.

(** No lossless verifier accepts more than sum min(n q, p). *)
Lemma acceptance_le_union k : lossless (iid q (n := n)) p k ->
  acceptance (iid q (n := n)) k <= \sum_i Num.min (n%:R * q i) (p i).
Proof.
move=> [vk kp].
have k0 s i : 0 <= k s i by case: (vk s).
have k1 s i : k s i <= 1 by case: (vk s) => _ <-; rewrite (bigD1 i) //= ler_addl sumr_ge0.
have i0 (s : n.-tuple V) : 0 <= iid q s by apply: prodr_ge0.
rewrite /acceptance (eq_bigr (fun s : n.-tuple V => \sum_i iid q s * (if i \in s then k s i else 0))).
  rewrite exchange_big /=; apply: ler_sum => i _; rewrite le_minr; apply/andP; split.
    apply: le_trans (drafted_le n i); apply: ler_sum => s _; rewrite ler_wpmul2l //.
    by case: ifP.
  by rewrite -kp; apply: ler_sum => s _; rewrite ler_wpmul2l //; case: ifP.
by move=> s _; rewrite big_mkcond mulr_sumr.
Qed.

Let nR0 : 0 < n%:R :> R. Proof. by rewrite ltr0n. Qed.

(** K-SEQ reaches at least 1 - (1 - 1/n)^n (so more than 1 - 1/e) of the acceptance
    rate of any lossless verifier ([2]). *)
Theorem kseq_ratio g k : 0 < g -> kseq_fixed_point p q g n -> lossless (iid q (n := n)) p k ->
  (1 - (1 - n%:R^-1) ^+ n) * acceptance (iid q (n := n)) k
  <= acceptance (iid q (n := n)) (fun s : n.-tuple V => kseq p q g s).
Proof.
move=> g0 fixed lk; rewrite (kseq_acceptance_gen dp dq g0 fixed).
pose bn := kseq_b p q n%:R; pose S x : R := \sum_(i < n) x ^+ i.
have SE x : 1 - x ^+ n = (1 - x) * S x.
  have -> : 1 - x ^+ n = 1 ^+ n - x ^+ n by rewrite expr1n.
  by rewrite subrXX; congr (_ * _); apply: eq_bigr => i _; rewrite expr1n mul1r.
have Smono x y : 0 <= x -> x <= y -> S x <= S y.
  move=> x0 xy; apply: ler_sum => i _; apply: ler_expn2r; rewrite ?nnegrE //.
  exact: le_trans xy.
have bn0 : 0 <= bn := kseq_b_ge0 dp dq nR0.
have bn1 : bn <= n%:R^-1.
  have -> : n%:R^-1 = \sum_i p i / n%:R by rewrite -mulr_suml (proj2 dp) mul1r.
  by apply: ler_sum => i _; rewrite le_minl lexx orbT.
have n1 : n%:R^-1 <= 1 :> R by rewrite invf_le1 // ler1n.
have c0 : 0 <= 1 - n%:R^-1 :> R by rewrite subr_ge0.
have opt : acceptance (iid q (n := n)) k <= n%:R * bn.
  apply: le_trans (acceptance_le_union lk) _.
  by rewrite (kseq_gb p q nR0).
have e0 : 0 <= 1 - (1 - n%:R^-1) ^+ n :> R.
  by rewrite subr_ge0 exprn_ile1 // ler_subl_addr ler_addl invr_ge0 ltW.
apply: le_trans (ler_wpmul2l e0 opt) _.
apply: le_trans (_ : 1 - (1 - bn) ^+ n <= _).
  have SE' x : 1 - (1 - x) ^+ n = x * S (1 - x).
    by rewrite SE; congr (_ * _); ring.
  have -> : (1 - (1 - n%:R^-1) ^+ n) * (n%:R * bn) = bn * S (1 - n%:R^-1).
    have comm (c N y z : R) : c * y * (N * z) = c * N * (z * y) by ring.
    by rewrite SE' comm mulVf ?mul1r // lt0r_neq0.
  rewrite SE'.
  apply: ler_wpmul2l => //; apply: Smono => //.
  by rewrite ler_sub.
rewrite ler_sub // ; apply: ler_expn2r; rewrite ?nnegrE ?subr_ge0 ?kseq_b_le1 //.
rewrite ler_sub //; have [bz|bnz] := eqVneq (kseq_b p q g) 0.
  have /eqP := bz; rewrite psumr_eq0 => [|i _]; last by rewrite le_minr q0 divr_ge0 // ltW.
  move=> /allP h; rewrite bz /bn.
  apply: le_trans (_ : \sum_(i : V) (0 : R) <= _); last by rewrite big1.
  apply: ler_sum => i _.
  have /eqP := h i (mem_index_enum i); case: (leP (q i) (p i / g)) => _; first by move=> ->; rewrite le_minl lexx.
  by move=> /eqP; rewrite mulf_eq0 invr_eq0 (gt_eqF g0) orbF => /eqP ->; rewrite mul0r le_minl lexx orbT.
have gn : g <= n%:R.
  have -> : g = geometric p q g n.
    by apply: (mulIf bnz); rewrite geometric_b fixed.
  have -> : n%:R = \sum_(l < n) (1 : R) by rewrite sumr_const card_ord.
  apply: ler_sum => l _; apply: exprn_ile1; first by rewrite subr_ge0 kseq_b_le1.
  by rewrite ler_subl_addr ler_addl kseq_b_ge0.
apply: ler_sum => i _; rewrite le_minr !le_minl lexx /=; apply/orP; right.
by rewrite ler_wpmul2l // lef_pinv ?posrE.
Qed.

End Ratio.

(** ** gamma exists *)
Section Gamma.
Variables (R : rcfType) (V : finType) (p q : V -> R) (n : nat).
Hypotheses (dp : is_dist p) (dq : is_dist q) (n0 : (0 < n)%N).

Let p0 i : 0 <= p i. Proof. by case: dp. Qed.
Let q0 i : 0 <= q i. Proof. by case: dq. Qed.

(* in terms of x = 1 / gamma *)
Let b x : R := \sum_i Num.min (q i) (p i * x).
Let h x : R := x * (1 - (1 - b x) ^+ n) - b x.

(* the tokens whose minimum changes sides inside ]x, y[ *)
Let breaks x y : {set V} := [set i | (p i * x < q i) && (q i < p i * y)].

Lemma h_root x y : 0 <= x -> x <= y -> h x <= 0 -> 0 <= h y ->
  exists2 z, x <= z <= y & h z = 0.
Proof.
have [m] := ubnP #|breaks x y|; elim: m x y => // m IH x y.
rewrite ltnS => card x0 xy hx hy.
have [none|[i]] := set_0Vmem (breaks x y).
  pose B : {poly R} := \sum_i (if q i <= p i * x then (q i)%:P else p i *: 'X).
  have BE z : x <= z <= y -> B.[z] = b z.
    case/andP=> xz zy; rewrite /B horner_sum; apply: eq_bigr => i _.
    case: (leP (q i) (p i * x)) => qx.
      by rewrite hornerC (min_idPl _) // (le_trans qx) // ler_wpmul2l.
    rewrite hornerZ hornerX (min_idPr _) //; apply: le_trans (_ : p i * y <= _).
      by rewrite ler_wpmul2l.
    by have := in_set0 i; rewrite -none inE qx /= => /negbT; rewrite -leNgt.
  pose P : {poly R} := 'X * (1 - (1 - B) ^+ n) - B.
  have PE z : x <= z <= y -> P.[z] = h z.
    by move=> xzy; rewrite /P !hornerE BE // horner_exp !hornerE BE.
  have [|z xzy rz] := @poly_ivt R P x y xy.
    by rewrite !PE ?lexx ?xy // hx.
  by exists z; rewrite // -PE //; apply/eqP.
rewrite inE => /andP[ix iy]; have pi0 : 0 < p i.
  rewrite lt_neqAle eq_sym p0 andbT; apply: contraTneq iy => ->.
  by rewrite mul0r -leNgt.
pose t := q i / p i; have tE : p i * t = q i by rewrite mulrC divfK // gt_eqF.
have xt : x < t by rewrite -(ltr_pmul2l pi0) tE.
have ty : t < y by rewrite -(ltr_pmul2l pi0) tE.
have less (x' y' : R) : x <= x' -> y' <= y -> i \notin breaks x' y' -> (#|breaks x' y'| < m)%N.
  move=> xx' yy' ni; apply: leq_trans card; apply: proper_card; apply/properP; split.
    apply/subsetP => j; rewrite !inE => /andP[h1 h2]; apply/andP; split.
      by apply: le_lt_trans h1; rewrite ler_wpmul2l.
    by apply: lt_le_trans h2 _; rewrite ler_wpmul2l.
  by exists i => //; rewrite inE ix iy.
have [ht|ht] := leP 0 (h t).
  have [|z /andP[xz zt] hz] := IH x t _ x0 (ltW xt) hx ht.
    by apply: less (lexx _) (ltW ty) _; rewrite inE tE ltxx andbF.
  by exists z; rewrite // xz (le_trans zt (ltW ty)).
have [|z /andP[tz zy] hz] := IH t y _ (le_trans x0 (ltW xt)) (ltW ty) (ltW ht) hy.
  by apply: less (ltW xt) (lexx _) _; rewrite inE tE ltxx.
by exists z; rewrite // zy (le_trans (ltW xt) tz).
Qed.

(** Over the reals (any real closed field) the fixed point exists between 1 and n. *)
Theorem kseq_gamma_exists : exists2 g, 1 <= g <= n%:R & kseq_fixed_point p q g n.
Proof.
have bE x : 0 < x -> b x = kseq_b p q x^-1.
  by move=> x0; apply: eq_bigr => i _; rewrite invrK.
have nR : 0 < n%:R :> R by rewrite ltr0n.
have b01 x : 0 < x -> 0 <= b x <= 1.
  by move=> x0; rewrite bE // kseq_b_ge0 ?kseq_b_le1 // invr_gt0.
have low : h n%:R^-1 <= 0.
  have x0 : 0 < n%:R^-1 :> R by rewrite invr_gt0.
  rewrite subr_le0 mulrC ler_pdivr_mulr //.
  have /andP[b0 b1] := b01 _ x0; rewrite (bE _ x0) in b0 b1 *.
  rewrite -geometric_b [X in X <= _]mulrC ler_wpmul2l //.
  rewrite [X in _ <= X](_ : n%:R = \sum_(l < n) (1 : R)); last by rewrite sumr_const card_ord.
  apply: ler_sum => l _; apply: exprn_ile1; first by rewrite subr_ge0.
  by rewrite ler_subl_addr ler_addl.
have high : 0 <= h 1.
  have /andP[b0 b1] := b01 1 ltr01.
  rewrite /h mul1r subr_ge0 -(prednK n0) exprS.
  rewrite -subr_ge0; have -> : 1 - (1 - b 1) * (1 - b 1) ^+ n.-1 - b 1 = (1 - b 1) * (1 - (1 - b 1) ^+ n.-1) by ring.
  by rewrite mulr_ge0 ?subr_ge0 // exprn_ile1 ?subr_ge0 // ler_subl_addr ler_addl.
have n1 : n%:R^-1 <= 1 :> R by rewrite invf_le1 // ler1n.
have [z /andP[nz z1] hz] := h_root (ltW (etrans (invr_gt0 _) nR)) n1 low high.
have z0 : 0 < z by apply: lt_le_trans nz; rewrite invr_gt0.
exists z^-1.
  by rewrite invf_ge1 // z1 -[X in _ <= X]invrK lef_pinv ?posrE ?invr_gt0.
rewrite /kseq_fixed_point -bE //; move/eqP: hz; rewrite subr_eq0 => /eqP e.
by rewrite -{2}e mulKf // gt_eqF.
Qed.

End Gamma.
