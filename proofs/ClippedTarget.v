(** * The intermediate target of the convex-minorant verifier (theory, section 4, step 1).

    Along the tokens of the support of q, sorted by p/q increasing, let a_i = p(e_i) and
    b_i = q(e_i), P_j and X_j their prefix sums, k the prefix that minimises
    P_j - X_j^n, and D = X_k^n - P_k.  The target is clipped from below by kappa q
    inside the prefix and from above by tau q outside.  This file is about the
    sequences only, and p may have mass below 1. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions Merging.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Clipped.
Variables (R : realFieldType) (n m : nat) (a b : nat -> R).
Implicit Types i j : nat.

Definition prefix_sum (f : nat -> R) j : R := \sum_(i < j) f i.
Notation X := (prefix_sum b).
Notation P := (prefix_sum a).

Variable k : nat.
Definition gap : R := X k ^+ n - P k.
Definition lower_ratio j : R := (P j + gap) / X j.
Definition upper_ratio j : R := (1 - P j - gap) / (1 - X j).

(** kappa: the least lower ratio over 1 <= i <= k; tau: the greatest upper ratio
    over k <= i < m. *)
Definition kappa : R := \big[Num.min/lower_ratio 1]_(1 <= i < k.+1) lower_ratio i.
Definition tau : R := \big[Num.max/upper_ratio k]_(k <= i < m) upper_ratio i.

Definition clipped i : R :=
  if (i < k)%N then Num.max (a i) (kappa * b i) else Num.min (a i) (tau * b i).
Notation T := (prefix_sum clipped).

Hypotheses (n0 : (0 < n)%N) (km : (k <= m)%N).
Hypotheses (a0 : forall i, 0 <= a i) (b0 : forall i, (i < m)%N -> 0 < b i).
Hypothesis ratio : forall i, (i.+1 < m)%N -> a i * b i.+1 <= a i.+1 * b i.
Hypothesis X1 : X m = 1.
Hypothesis kmin : forall j, (j <= m)%N -> P k - X k ^+ n <= P j - X j ^+ n.

Lemma prefix_sum0 f : prefix_sum f 0 = 0.
Proof. by rewrite /prefix_sum big_ord0. Qed.

Lemma prefix_sumS f j : prefix_sum f j.+1 = prefix_sum f j + f j.
Proof. by rewrite /prefix_sum big_ord_recr. Qed.

Lemma X_ltS j : (j < m)%N -> X j < X j.+1.
Proof. by move=> jm; rewrite prefix_sumS ltr_addl b0. Qed.

Lemma X_lt i j : (i < j)%N -> (j <= m)%N -> X i < X j.
Proof.
elim: j => // j IH; rewrite ltnS leq_eqVlt => /orP[/eqP -> jm|ij jm]; first exact: X_ltS.
by apply: lt_trans (X_ltS jm); apply: IH => //; apply: ltnW.
Qed.

Lemma X_le i j : (i <= j)%N -> (j <= m)%N -> X i <= X j.
Proof.
rewrite leq_eqVlt => /orP[/eqP -> _|ij jm]; first exact: lexx.
exact/ltW/X_lt.
Qed.

Lemma X_ge0 j : (j <= m)%N -> 0 <= X j.
Proof. by move=> jm; rewrite -(prefix_sum0 b); apply: X_le. Qed.

Lemma X_le1 j : (j <= m)%N -> X j <= 1.
Proof. by move=> jm; rewrite -X1; apply: X_le. Qed.

Lemma bge i : (i < m)%N -> 0 <= b i.
Proof. by move=> /b0/ltW. Qed.

Lemma ratio_mono i j : (i <= j)%N -> (j < m)%N -> a i * b j <= a j * b i.
Proof.
elim: j => [|j IH]; first by rewrite leqn0 => /eqP ->.
rewrite leq_eqVlt => /orP[/eqP -> //|]; rewrite ltnS => ij jm.
have im := leq_ltn_trans ij (ltnW jm).
rewrite -(ler_pmul2r (b0 (ltnW jm))).
have h1 := ler_wpmul2r (bge jm) (IH ij (ltnW jm)).
have h2 := ler_wpmul2r (bge im) (ratio jm).
by apply: (ler_from (ler_add h1 h2)); ring.
Qed.

Lemma gapE : gap = X k ^+ n - P k. Proof. by []. Qed.

Lemma above j : (j <= m)%N -> X j ^+ n <= P j + gap.
Proof. by move=> /kmin h; apply: (ler_from h); rewrite gapE; ring. Qed.

Lemma gap_ge0 : 0 <= gap.
Proof. by have := above (leq0n m); rewrite !prefix_sum0 add0r expr0n eqn0Ngt n0. Qed.

(* a line below the points (X_i, P_i + gap), i in [lo, hi], that touches at i0:
   the ratios a/b are below its slope before i0 and above it after *)
Lemma support_line (al be : R) lo i0 hi : (hi <= m)%N -> (lo <= i0 <= hi)%N ->
  (forall i, (lo <= i <= hi)%N -> al + be * X i <= P i + gap) ->
  al + be * X i0 = P i0 + gap ->
  (forall i, (lo <= i < i0)%N -> a i <= be * b i) /\
  (forall i, (i0 <= i < hi)%N -> be * b i <= a i).
Proof.
move=> him /andP[lo0 i0h] le e; split=> i /andP[h1 h2].
- case: i0 lo0 i0h e h2 => // i0 lo0 i0h e; rewrite ltnS => ii0.
  have i0m : (i0 < m)%N := leq_trans i0h him.
  have h : a i0 <= be * b i0.
    have := le i0; rewrite (leq_trans h1 ii0) (ltnW i0h) => /(_ isT).
    have -> : P i0 + gap = al + be * (X i0 + b i0) - a i0.
      by rewrite -prefix_sumS e prefix_sumS; ring.
    by move=> h; apply: (ler_from h); ring.
  rewrite -(ler_pmul2r (b0 i0m)); apply: le_trans (ratio_mono ii0 i0m) _.
  rewrite [be * _ * _]mulrAC; apply: ler_wpmul2r h.
  exact: bge (leq_ltn_trans ii0 i0m).
- have i0m : (i0 < m)%N := leq_ltn_trans h1 (leq_trans h2 him).
  have im : (i < m)%N := leq_trans h2 him.
  have h : be * b i0 <= a i0.
    have := le i0.+1; rewrite (leq_trans lo0 (leqnSn _)) (leq_ltn_trans h1 h2) => /(_ isT).
    rewrite !prefix_sumS addrAC -e => h.
    by apply: (ler_from h); ring.
  rewrite -(ler_pmul2r (b0 i0m)); apply: le_trans (ratio_mono h1 im).
  by rewrite mulrAC; apply: ler_wpmul2r h; apply: bge.
Qed.

(* kappa q cuts the prefix at some i1: the target is kappa q before, p after *)
Lemma kappa_cut : exists i1, [/\ (i1 <= k)%N, kappa * X i1 = P i1 + gap,
  forall i, (i < i1)%N -> a i <= kappa * b i
  & forall i, (i1 <= i < k)%N -> kappa * b i <= a i].
Proof.
have [k0|k1] := posnP k.
  exists 0%N; split=> // [|i]; last by rewrite k0 ltn0.
  by rewrite !prefix_sum0 mulr0 add0r /gap k0 !prefix_sum0 expr0n eqn0Ngt n0 subrr.
have Xp i : (1 <= i <= k)%N -> 0 < X i.
  by case/andP=> i1 ik; rewrite -(prefix_sum0 b); apply: X_lt => //; apply: leq_trans km.
have [i1 i1k e] : exists2 i1, (1 <= i1 <= k)%N & kappa = lower_ratio i1.
  rewrite /kappa; have [->|[i1]] := bigmin_mem lower_ratio (lower_ratio 1) (index_iota 1 k.+1).
    by exists 1%N; rewrite ?k1.
  by rewrite mem_index_iota ltnS => h ->; exists i1.
have le i : (0 <= i <= k)%N -> 0 + kappa * X i <= P i + gap.
  rewrite add0r; have [-> _|i0 /= ik] := posnP i.
    by rewrite !prefix_sum0 mulr0 add0r gap_ge0.
  rewrite -ler_pdivl_mulr ?Xp ?i0 //; apply: bigmin_le.
  by rewrite mem_index_iota i0 ltnS.
have eq1 : kappa * X i1 = P i1 + gap by rewrite e divfK // lt0r_neq0 ?Xp.
have /andP[_ i1k'] := i1k.
have eq1' : 0 + kappa * X i1 = P i1 + gap by rewrite add0r.
have [h1 h2] := support_line km (i1k' : (0 <= i1 <= k)%N) le eq1'.
by exists i1; split=> // i ii; apply: h1.
Qed.

(* tau q cuts the rest at some i2: the target is p before, tau q after *)
Lemma tau_cut : exists i2, [/\ (k <= i2 <= m)%N, 1 - tau * (1 - X i2) = P i2 + gap,
  forall i, (k <= i < i2)%N -> a i <= tau * b i
  & forall i, (i2 <= i < m)%N -> tau * b i <= a i].
Proof.
have affine x : 1 - tau * (1 - x) = (1 - tau) + tau * x by ring.
have last1 : 1 <= P m + gap by have := above (leqnn m); rewrite X1 expr1n.
have Xm i : (i < m)%N -> 0 < 1 - X i by move=> im; rewrite subr_gt0 -X1 X_lt.
have le i : (k <= i <= m)%N -> (1 - tau) + tau * X i <= P i + gap.
  move=> /andP[ki im]; rewrite -affine; move: im; rewrite leq_eqVlt => /orP[/eqP ->|im].
    by rewrite X1 subrr mulr0 subr0.
  have : upper_ratio i <= tau by apply: bigmax_ge; rewrite mem_index_iota ki.
  rewrite ler_pdivr_mulr ?Xm // => h; by apply: (ler_from h); ring.
have [i2 i2k e] : exists2 i2, (k <= i2 <= m)%N & 1 - tau * (1 - X i2) = P i2 + gap.
  move: km; rewrite leq_eqVlt => /orP[/eqP kE|km'].
    exists m; first by rewrite leqnn -kE leqnn.
    by rewrite X1 subrr mulr0 subr0 gapE kE X1 expr1n addrC subrK.
  have [i2 /andP[k2 i2m] e] : exists2 i2, (k <= i2 < m)%N & tau = upper_ratio i2.
    rewrite /tau; have [->|[i2]] := bigmax_mem upper_ratio (upper_ratio k) (index_iota k m).
      by exists k; rewrite ?leqnn.
    by rewrite mem_index_iota => h ->; exists i2.
  exists i2; first by rewrite k2 ltnW.
  by rewrite e divfK ?lt0r_neq0 ?Xm //; ring.
rewrite affine in e.
have [h1 h2] := support_line (leqnn m) i2k le e.
by exists i2; split=> //; rewrite affine.
Qed.

Section Cut.
Variables i1 i2 : nat.
Hypotheses (i1k : (i1 <= k)%N) (eq1 : kappa * X i1 = P i1 + gap).
Hypotheses (low1 : forall i, (i < i1)%N -> a i <= kappa * b i)
  (high1 : forall i, (i1 <= i < k)%N -> kappa * b i <= a i).
Hypotheses (k2 : (k <= i2)%N) (i2m : (i2 <= m)%N) (eq2 : 1 - tau * (1 - X i2) = P i2 + gap).
Hypotheses (low2 : forall i, (k <= i < i2)%N -> a i <= tau * b i)
  (high2 : forall i, (i2 <= i < m)%N -> tau * b i <= a i).

Lemma T_low j : (j <= i1)%N -> T j = kappa * X j.
Proof.
elim: j => [|j IH] ji; first by rewrite !prefix_sum0 mulr0.
rewrite !prefix_sumS IH 1?ltnW // /clipped (leq_trans ji i1k) mulrDr.
by rewrite (max_idPr _) // low1.
Qed.

Lemma T_mid j : (i1 <= j <= i2)%N -> T j = P j + gap.
Proof.
case/andP; elim: j => [|j IH].
  by rewrite leqn0 => /eqP e _; move: (T_low (leqnn i1)); rewrite eq1 e.
rewrite leq_eqVlt => /orP[/eqP <- _|]; first by rewrite T_low.
rewrite ltnS => ij ji; rewrite !prefix_sumS (IH ij (ltnW ji)) /clipped.
have -> : (if (j < k)%N then Num.max (a j) (kappa * b j) else Num.min (a j) (tau * b j)) = a j.
  case: ltnP => jk; first by rewrite (max_idPl _) // high1 // ij.
  by rewrite (min_idPl _) // low2 // jk.
by rewrite addrAC.
Qed.

Lemma T_high j : (i2 <= j <= m)%N -> T j = 1 - tau * (1 - X j).
Proof.
case/andP; elim: j => [|j IH].
  rewrite leqn0 => /eqP e _; rewrite -e eq2; apply: T_mid.
  by rewrite leqnn (leq_trans i1k k2).
rewrite leq_eqVlt => /orP[/eqP <- _|].
  by rewrite eq2 T_mid // leqnn (leq_trans i1k k2).
rewrite ltnS => ij jm; rewrite !prefix_sumS (IH ij (ltnW jm)) /clipped.
rewrite ltnNge (leq_trans k2 ij) /= (min_idPr _) ?high2 ?ij //; ring.
Qed.

Lemma T_k : T k = X k ^+ n.
Proof. by rewrite T_mid ?i1k // gapE addrC subrK. Qed.

Lemma T_m : T m = 1.
Proof. by rewrite T_high ?i2m ?leqnn // X1 subrr mulr0 subr0. Qed.

Lemma T_above j : (j <= m)%N -> X j ^+ n <= T j.
Proof.
move=> jm; have [ji1|i1j] := leqP j i1.
  rewrite T_low //; have [j0|j0] := posnP j.
    by rewrite j0 prefix_sum0 mulr0 expr0n eqn0Ngt n0.
  have i1m := leq_trans i1k km.
  have Xi0 : 0 < X i1 by rewrite -(prefix_sum0 b); apply: X_lt => //; apply: leq_trans ji1.
  have h := above i1m; rewrite -eq1 in h.
  rewrite -(prednK n0) !exprS ![kappa * _]mulrC in h *.
  rewrite ler_pmul2l // in h; apply: ler_wpmul2l; first exact: X_ge0.
  by apply: le_trans h; apply: ler_expn2r; rewrite ?nnegrE ?X_ge0 ?X_le.
have [ji2|i2j] := leqP j i2; first by rewrite T_mid ?above // (ltnW i1j).
rewrite T_high ?(ltnW i2j) //; have := above i2m; rewrite -eq2 => h.
pose S x : R := \sum_(i < n) x ^+ i.
have SE x : 1 - x ^+ n = (1 - x) * S x.
  have -> : 1 - x ^+ n = 1 ^+ n - x ^+ n by rewrite expr1n.
  by rewrite subrXX; congr (_ * _); apply: eq_bigr => i _; rewrite expr1n mul1r.
have c2 : 0 < 1 - X i2 by rewrite subr_gt0 -X1 X_lt // (leq_trans i2j).
have t2 : tau <= S (X i2).
  by rewrite -(ler_pmul2l c2) -SE; apply: (ler_from h); ring.
have t3 : S (X i2) <= S (X j).
  by apply: ler_sum => i _; apply: ler_expn2r; rewrite ?nnegrE ?X_ge0 ?X_le // ltnW.
have c3 : 0 <= 1 - X j by rewrite subr_ge0 X_le1.
have h' := ler_wpmul2l c3 (le_trans t2 t3); rewrite -SE in h'.
by apply: (ler_from h'); ring.
Qed.

Lemma min_clipped : \sum_(i < m) Num.min (clipped i) (a i) = 1 + P k - X k ^+ n.
Proof.
have split_sum (f : nat -> R) : \sum_(i < m) f i
    = prefix_sum f k + \sum_(i < m | (k <= i)%N) f i.
  rewrite (bigID (fun i : 'I_m => (i < k)%N)) /= /prefix_sum (big_ord_widen _ _ km).
  by congr (_ + _); apply: eq_bigl => i; rewrite -leqNgt.
have hT := T_m; rewrite [in LHS]/prefix_sum split_sum T_k in hT.
rewrite (split_sum (fun i => Num.min (clipped i) (a i))).
have -> : prefix_sum (fun i => Num.min (clipped i) (a i)) k = P k.
  apply: eq_bigr => i _; rewrite /clipped ltn_ord (min_idPr _) //.
  by rewrite le_maxr lexx.
have -> : \sum_(i < m | (k <= i)%N) Num.min (clipped i) (a i) = \sum_(i < m | (k <= i)%N) clipped i.
  apply: eq_bigr => i ki; rewrite (min_idPl _) // /clipped ltnNge ki /=.
  by rewrite le_minl lexx.
by rewrite -hT; ring.
Qed.

Lemma tau_ge0 : (k < m)%N -> 0 <= tau.
Proof.
move=> km'; apply: le_trans (_ : upper_ratio k <= _); last first.
  by apply: bigmax_ge; rewrite mem_index_iota leqnn.
rewrite /upper_ratio divr_ge0 ?subr_ge0 ?X_le1 // gapE ler_add2r.
by rewrite exprn_ile1 ?X_ge0 ?X_le1.
Qed.

Lemma clipped_ge0 i : (i < m)%N -> 0 <= clipped i.
Proof.
move=> im; rewrite /clipped; case: ltnP => ik; first by rewrite le_maxr a0.
by rewrite le_minr a0 mulr_ge0 ?bge // tau_ge0 // (leq_ltn_trans ik).
Qed.

(* the ratio t/q is nondecreasing along the order *)
Lemma clipped_ratio i : (i.+1 < m)%N -> clipped i * b i.+1 <= clipped i.+1 * b i.
Proof.
move=> im; have bi := b0 (ltnW im); have bi1 := b0 im.
have r := ratio im.
have [ik|ki|ik] := ltngtP i.+1 k.
- rewrite /clipped ik (ltnW ik); case: (leP (a i)) => _.
    by rewrite [X in X <= _]mulrAC; apply: (ler_wpmul2r (ltW bi)); rewrite le_maxr lexx orbT.
  by apply: le_trans r _; apply: (ler_wpmul2r (ltW bi)); rewrite le_maxr lexx.
- rewrite /clipped; have -> : (i < k)%N = false by rewrite ltnNge -ltnS ki.
  have -> : (i.+1 < k)%N = false by rewrite ltnNge (ltnW ki).
  case: (leP (a i.+1)) => _.
    by apply: le_trans r; apply: (ler_wpmul2r (ltW bi1)); rewrite le_minl lexx.
  by rewrite [X in _ <= X]mulrAC; apply: (ler_wpmul2r (ltW bi1)); rewrite le_minl lexx orbT.
have ci : clipped i = T k - T i by rewrite -ik prefix_sumS addrC addKr.
have ci1 : clipped i.+1 = T k.+1 - T k by rewrite -ik [T i.+2]prefix_sumS addrC addKr.
have h1 := T_above (ltnW (ltnW im)); have h2 := T_above im.
have h3 : (X k ^+ n - X i ^+ n) * b i.+1 <= (X i.+2 ^+ n - X k ^+ n) * b i.
  have := slope_exp n (X_ge0 (ltnW (ltnW im))) (X_ltS (ltnW im)) (X_ltS im).
  rewrite /slope -!ik ler_cross ?subr_gt0 ?X_ltS ?(ltnW im) //.
  by rewrite ![X _.+1]prefix_sumS ![_ + b _ - _]addrC ![- _ + _]addKr ![b _ * _]mulrC.
rewrite ci ci1 T_k; apply: le_trans (_ : (X k ^+ n - X i ^+ n) * b i.+1 <= _).
  by apply: (ler_wpmul2r (ltW bi1)); rewrite ler_sub.
apply: le_trans h3 _; apply: (ler_wpmul2r (ltW bi)); rewrite -ik.
exact: ler_sub h2 (lexx _).
Qed.

End Cut.

(** The target t_i = clipped i sums to 1, has nondecreasing ratio t/q, its prefix sums
    are above X^n with equality at the optimal prefix, and it meets p in
    1 + P_k - X_k^n. *)
Theorem clipped_target :
  [/\ (forall i, (i < m)%N -> 0 <= clipped i) /\ T m = 1,
      forall i, (i.+1 < m)%N -> clipped i * b i.+1 <= clipped i.+1 * b i,
      forall j, (j <= m)%N -> X j ^+ n <= T j,
      T k = X k ^+ n
    & \sum_(i < m) Num.min (clipped i) (a i) = 1 + P k - X k ^+ n].
Proof.
have [i1 [i1k eq1 low1 high1]] := kappa_cut.
have [i2 [/andP[k2 i2m] eq2 low2 high2]] := tau_cut.
have above := @T_above i1 i2 i1k eq1 low1 high1 k2 i2m eq2 low2 high2.
split.
- by split; [exact: clipped_ge0 | exact: (T_m i1k eq1 low1 high1 k2 i2m eq2 low2 high2)].
- exact: (clipped_ratio i1k eq1 low1 high1 k2 i2m eq2 low2 high2).
- exact: above.
- exact: (T_k i1k eq1 low1 high1 k2 low2).
- exact: (min_clipped i1k eq1 low1 high1 k2 i2m eq2 low2 high2).
Qed.

End Clipped.
