(** * What everything is about: distributions, draft sets, verifiers.

    Notation follows the code: [p] is the target distribution, [pd] the joint
    distribution of the [n] draft tokens, [H] a set of tokens, P(H) = [mass p H],
    Q(H) = [qmass pd H].  All statements hold over any ordered field [R], so in
    particular over the rationals and the reals. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** ** Definitions *)
Section Definitions.
Variables (R : realFieldType) (V : finType).
Implicit Types (p q : V -> R) (H : {set V}).

Definition is_dist (T : finType) (f : T -> R) : Prop :=
  (forall x, 0 <= f x) /\ \sum_x f x = 1.

(** P(H): the mass [p] gives to the tokens of [H]. *)
Definition mass p H : R := \sum_(v in H) p v.

Section Drafts.
Variable n : nat.
Implicit Types (pd : n.-tuple V -> R) (k pi : n.-tuple V -> V -> R).

(** Q(H): the probability that all drafts lie in [H]. *)
Definition qmass pd H : R := \sum_(s : n.-tuple V | all (mem H) s) pd s.

(** A verifier is a kernel: the law [k s] of the emitted token given the drafts
    [s].  It is lossless when the emitted token has law [p] exactly. *)
Definition verifier k : Prop := forall s, is_dist (k s).
Definition emitted pd k (i : V) : R := \sum_s pd s * k s i.
Definition lossless pd p k : Prop := verifier k /\ forall i, emitted pd k i = p i.

(** The probability that the emitted token is one of the drafts. *)
Definition acceptance pd k : R := \sum_(s : n.-tuple V) pd s * \sum_(i | i \in s) k s i.

(** The same as a joint law of (drafts, emitted token): a coupling of [pd] and
    [p], the variable of the linear program of [1], sec. 3. *)
Definition coupling pd p pi : Prop :=
  [/\ forall s i, 0 <= pi s i,
      forall s, \sum_i pi s i = pd s
    & forall i, \sum_s pi s i = p i].

Definition coupling_acceptance pi : R := \sum_(s : n.-tuple V) \sum_(i | i \in s) pi s i.

Definition joint pd k : n.-tuple V -> V -> R := fun s i => pd s * k s i.

End Drafts.

(** Increments of a set function grow with the set. *)
Definition supermodular (Q : {set V} -> R) : Prop :=
  forall A B, Q A + Q B <= Q (A :|: B) + Q (A :&: B).

End Definitions.

(** ** Couplings and verifiers are the same thing *)
Section Kernels.
Variables (R : realFieldType) (V : finType) (n : nat) (pd : n.-tuple V -> R) (p : V -> R).

Lemma lossless_coupling k :
  is_dist pd -> lossless pd p k -> coupling pd p (joint pd k).
Proof.
move=> [pd0 _] [vk kp]; split=> [s i|s|i]; last exact: kp.
  by rewrite mulr_ge0 //; case: (vk s).
by rewrite -mulr_sumr; case: (vk s) => _ ->; rewrite mulr1.
Qed.

Lemma acceptance_joint (k : n.-tuple V -> V -> R) :
  coupling_acceptance (joint pd k) = acceptance pd k.
Proof. by apply: eq_bigr => s _; rewrite mulr_sumr. Qed.

(** Every coupling is the joint law of a lossless verifier. *)
Lemma coupling_lossless pi : is_dist p -> coupling pd p pi ->
  exists k, lossless pd p k /\ forall s i, joint pd k s i = pi s i.
Proof.
move=> dp [pi0 m1 m2].
pose k s i := if pd s == 0 then p i else pi s i / pd s.
have jk s i : joint pd k s i = pi s i.
  rewrite /joint /k; case: (eqVneq (pd s) 0) => [z|nz]; last by rewrite mulrC divfK.
  rewrite z mul0r; have /eqP := m1 s; rewrite z psumr_eq0 => [|j _ //].
  by move=> /allP/(_ i (mem_index_enum i))/eqP.
exists k; split=> //; split=> [s|i]; last first.
  by rewrite -m2; apply: eq_bigr => s _; apply: jk.
split=> [i|]; rewrite /k; case: (eqVneq (pd s) 0) => [_|nz]; try by case: dp.
  by rewrite divr_ge0 // -m1 sumr_ge0.
by rewrite -mulr_suml m1 divff.
Qed.

End Kernels.

(** ** Toolbox *)
Section Toolbox.
Variables (R : realFieldType) (V : finType).
Implicit Types (p q : V -> R) (H : {set V}).

(** Linear arithmetic by hand: [a <= b] from [c <= d] and [d - c = b - a]. *)
Lemma ler_from (a b c d : R) : c <= d -> d - c = b - a -> a <= b.
Proof. by move=> cd e; rewrite -subr_ge0 -e subr_ge0. Qed.

Lemma ltr_from (a b c d : R) : c < d -> d - c = b - a -> a < b.
Proof. by move=> cd e; rewrite -subr_gt0 -e subr_gt0. Qed.

Lemma ler_cross (a b x y : R) : 0 < x -> 0 < y -> (a / x <= b / y) = (y * a <= x * b).
Proof.
move=> x0 y0; rewrite ler_pdivr_mulr // mulrAC ler_pdivl_mulr //.
by rewrite [y * a]mulrC [x * b]mulrC.
Qed.

Lemma massU1 p H x : x \notin H -> mass p (x |: H) = p x + mass p H.
Proof. by move=> xH; rewrite /mass big_setU1. Qed.

Lemma massD1 p H x : x \in H -> mass p H = p x + mass p (H :\ x).
Proof. by move=> xH; rewrite /mass (big_setD1 x). Qed.

Lemma mass_ge0 p H : (forall v, 0 <= p v) -> 0 <= mass p H.
Proof. by move=> p0; apply: sumr_ge0. Qed.

Lemma massT p : mass p setT = \sum_v p v.
Proof. by rewrite /mass; apply: eq_bigl => v; rewrite inE. Qed.

Lemma mass0 p : mass p set0 = 0.
Proof. by rewrite /mass big_set0. Qed.

Lemma massC p H : mass p H + mass p (~: H) = \sum_v p v.
Proof.
rewrite (bigID (mem H)) /=; congr (_ + _).
by apply: eq_bigl => v; rewrite inE.
Qed.

Lemma ler_sum_subset (T : finType) (P1 P2 : pred T) (F : T -> R) :
  (forall i, P1 i -> P2 i) -> (forall i, 0 <= F i) ->
  \sum_(i | P1 i) F i <= \sum_(i | P2 i) F i.
Proof.
move=> sub F0; rewrite [X in X <= _]big_mkcond [X in _ <= X]big_mkcond /=.
apply: ler_sum => i _; case h1: (P1 i); first by rewrite sub.
by case: (P2 i).
Qed.

Lemma sum_delta (U : finType) (u0 : U) (P : pred U) (x : R) :
  \sum_(u | P u) (if u == u0 then x else 0) = if P u0 then x else 0.
Proof.
rewrite -big_mkcondr /=; case: ifP => h.
  by rewrite (big_pred1 u0) // => u /=; rewrite andbC; case: eqP => //= ->; exact: h.
by rewrite big_pred0 // => u; rewrite andbC; case: eqP => //= ->.
Qed.

Lemma sum_option (T : finType) (P : pred (option T)) (F : option T -> R) :
  \sum_(o | P o) F o = (if P None then F None else 0) + \sum_(i | P (Some i)) F (Some i).
Proof.
rewrite big_mkcond (bigD1 None) //=; congr (_ + _).
rewrite (reindex_omap Some id) /=; last by case.
by rewrite [RHS]big_mkcond; apply: eq_bigl => i; rewrite eqxx.
Qed.

Lemma qmassE n (pd : n.-tuple V -> R) H :
  qmass pd H = \sum_(s : n.-tuple V) if all (mem H) s then pd s else 0.
Proof. by rewrite /qmass big_mkcond. Qed.

Lemma sum_tuple_cons n (F : n.+1.-tuple V -> R) :
  \sum_s F s = \sum_v \sum_(s : n.-tuple V) F [tuple of v :: s].
Proof.
rewrite pair_big /= (reindex (fun vs : V * n.-tuple V => [tuple of vs.1 :: vs.2])) //=.
exists (fun s => (thead s, [tuple of behead s])) => [[v s] _ | s _] /=.
  by congr pair; apply: val_inj.
by rewrite [RHS]tuple_eta.
Qed.

Lemma sum_tuple0 (F : 0.-tuple V -> R) : \sum_s F s = F [tuple].
Proof.
rewrite (eq_bigr (fun=> F [tuple])); last by move=> s _; rewrite tuple0.
by rewrite sumr_const card_tuple expn0.
Qed.

Lemma qmassT n (pd : n.-tuple V -> R) : qmass pd setT = \sum_s pd s.
Proof. by apply: eq_bigl => s; apply/allP => v _; rewrite /= inE. Qed.

End Toolbox.

(** Minimum and maximum over a list. *)
Section BigMin.
Variables (R : realFieldType) (I : eqType) (f : I -> R).

Lemma bigmin_le x0 (r : seq I) i : i \in r -> \big[Num.min/x0]_(j <- r) f j <= f i.
Proof.
elim: r => //= j r IH; rewrite inE big_cons le_minl => /orP[/eqP ->|/IH ->].
  by rewrite lexx.
by rewrite orbT.
Qed.

Lemma bigmin_mem x0 (r : seq I) :
  \big[Num.min/x0]_(j <- r) f j = x0 \/ exists2 i, i \in r & \big[Num.min/x0]_(j <- r) f j = f i.
Proof.
elim: r => [|j r IH]; first by left; rewrite big_nil.
rewrite big_cons; case: leP => _; first by right; exists j; rewrite ?mem_head.
by case: IH => [->|[i ir ->]]; [left|right; exists i => //; rewrite inE ir orbT].
Qed.

Lemma bigmax_ge x0 (r : seq I) i : i \in r -> f i <= \big[Num.max/x0]_(j <- r) f j.
Proof.
elim: r => //= j r IH; rewrite inE big_cons le_maxr => /orP[/eqP ->|/IH ->].
  by rewrite lexx.
by rewrite orbT.
Qed.

Lemma bigmax_mem x0 (r : seq I) :
  \big[Num.max/x0]_(j <- r) f j = x0 \/ exists2 i, i \in r & \big[Num.max/x0]_(j <- r) f j = f i.
Proof.
elim: r => [|j r IH]; first by left; rewrite big_nil.
rewrite big_cons; case: leP => _; last by right; exists j; rewrite ?mem_head.
by case: IH => [->|[i ir ->]]; [left|right; exists i => //; rewrite inE ir orbT].
Qed.

End BigMin.
