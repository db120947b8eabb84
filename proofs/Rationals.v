(** * The rational numbers to compute with.

    Coq's canonical rationals [Qc], numerator and denominator in binary, as an ordered
    field of MathComp: every theorem holds over them, and [vm_compute] evaluates. *)
From Coq Require Import ZArith QArith Qcanon.
From mathcomp Require Import all_ssreflect all_algebra.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.

(** ** Equality and choice *)

Definition qc_eqb (x y : Qc) : bool := Qeq_bool x y.

Lemma qc_eqP : Equality.axiom qc_eqb.
Proof.
move=> x y; apply: (iffP idP) => [|->]; rewrite /qc_eqb.
  by move=> /Qeq_bool_iff; apply: Qc_is_canon.
by apply/Qeq_bool_iff; apply: Qeq_refl.
Qed.

Canonical qc_eqType := EqType Qc (EqMixin qc_eqP).

(* binary numbers as natural numbers, only to have a choice function *)
Definition qc_code (x : Qc) : (bool * nat) * nat :=
  ((Z.leb 0 (Qnum x), Z.abs_nat (Qnum x)), Pos.to_nat (Qden x)).
Definition qc_decode (c : (bool * nat) * nat) : Qc :=
  Q2Qc (Qmake (if c.1.1 then Z.of_nat c.1.2 else Z.opp (Z.of_nat c.1.2)) (Pos.of_nat c.2)).

Lemma qc_codeK : cancel qc_code qc_decode.
Proof.
move=> [[n d] can]; apply: Qc_is_canon.
apply: (Qeq_trans _ _ _ (Qred_correct _)) => /=; rewrite Pos2Nat.id Zabs2Nat.id_abs.
case: (Z.leb_spec 0 n) => h; first by rewrite Z.abs_eq //; apply: Qeq_refl.
by rewrite Z.abs_neq ?Z.opp_involutive; [apply: Qeq_refl | apply: Z.lt_le_incl].
Qed.

Canonical qc_choiceType := ChoiceType Qc (CanChoiceMixin qc_codeK).

(** ** Field *)

Lemma qc_add_opp (x : Qc) : Qcplus (Qcopp x) x = 0%Qc.
Proof. by rewrite Qcplus_comm Qcplus_opp_r. Qed.

Definition qc_zmodMixin := ZmodMixin Qcplus_assoc Qcplus_comm Qcplus_0_l qc_add_opp.
Canonical qc_zmodType := ZmodType Qc qc_zmodMixin.

Lemma qc_1_neq0 : 1%Qc != 0%Qc :> Qc. Proof. by []. Qed.

Definition qc_comRingMixin :=
  ComRingMixin Qcmult_assoc Qcmult_comm Qcmult_1_l Qcmult_plus_distr_l qc_1_neq0.
Canonical qc_ringType := RingType Qc qc_comRingMixin.
Canonical qc_comRingType := ComRingType Qc Qcmult_comm.

Lemma qc_mulV (x : Qc) : x != 0%Qc -> Qcmult (Qcinv x) x = 1%Qc.
Proof. by move=> /eqP nz; apply: Qcmult_inv_l. Qed.

Lemma qc_inv0 : Qcinv 0%Qc = 0%Qc. Proof. exact: Qc_is_canon. Qed.

Definition qc_fieldUnitMixin := FieldUnitMixin qc_mulV qc_inv0.
Canonical qc_unitRingType := UnitRingType Qc qc_fieldUnitMixin.
Canonical qc_comUnitRingType := Eval hnf in [comUnitRingType of Qc].

Lemma qc_field_axiom : GRing.Field.mixin_of qc_unitRingType. Proof. by []. Qed.

Definition qc_idomainMixin := FieldIdomainMixin qc_field_axiom.
Canonical qc_idomainType := IdomainType Qc qc_idomainMixin.
Canonical qc_fieldType := FieldType Qc qc_field_axiom.

(** ** Order *)

Definition qc_leb (x y : Qc) : bool := Qle_bool x y.
Definition qc_ltb (x y : Qc) : bool := ~~ Qle_bool y x.
Definition qc_norm (x : Qc) : Qc := if qc_leb 0%Qc x then x else Qcopp x.

Lemma qc_leP x y : reflect (Qcle x y) (qc_leb x y).
Proof. by apply: (iffP idP) => /Qle_bool_iff. Qed.

Local Notation "x <=q y" := (qc_leb x y) (at level 70).

Lemma qc_le0D x y : 0%Qc <=q x -> 0%Qc <=q y -> 0%Qc <=q (x + y)%R.
Proof.
move=> /qc_leP x0 /qc_leP y0; apply/qc_leP.
by have := Qcplus_le_compat _ _ _ _ x0 y0; rewrite Qcplus_0_l.
Qed.

Lemma qc_le0M x y : 0%Qc <=q x -> 0%Qc <=q y -> 0%Qc <=q (x * y)%R.
Proof.
move=> /qc_leP x0 /qc_leP y0; apply/qc_leP.
by have := Qcmult_le_compat_r _ _ _ x0 y0; rewrite Qcmult_0_l.
Qed.

Lemma qc_le0_anti x : 0%Qc <=q x -> x <=q 0%Qc -> x = 0%Qc.
Proof. by move=> /qc_leP h1 /qc_leP h2; apply: Qcle_antisym. Qed.

Lemma qc_sub_ge0 x y : (0%Qc <=q (y - x)%R) = (x <=q y).
Proof.
have [h1 h2] := Qcle_minus_iff x y.
by apply/qc_leP/qc_leP => h; [apply: h2 | apply: h1].
Qed.

Lemma qc_le_total x y : (x <=q y) || (y <=q x).
Proof.
case: (Qclt_le_dec x y) => h; first by apply/orP; left; apply/qc_leP/Qclt_le_weak.
by apply/orP; right; apply/qc_leP.
Qed.

Lemma qc_normN x : qc_norm (- x)%R = qc_norm x.
Proof.
rewrite /qc_norm; have -> : (0%Qc <=q (- x)%R) = (x <=q 0%Qc) by rewrite -[RHS]qc_sub_ge0 sub0r.
have oppK : Qcopp (- x)%R = x by apply: opprK.
case h1: (x <=q 0%Qc); case h2: (0%Qc <=q x) => //.
  by rewrite (qc_le0_anti h2 h1) oppr0.
by have := qc_le_total x 0%Qc; rewrite h1 h2.
Qed.

Lemma qc_norm_ge0 x : 0%Qc <=q x -> qc_norm x = x.
Proof. by rewrite /qc_norm => ->. Qed.

Lemma qc_lt_def x y : qc_ltb x y = (y != x) && (x <=q y).
Proof.
rewrite /qc_ltb -/(qc_leb y x); case: eqP => [->|ne] /=.
  by have := qc_le_total x x; rewrite orbb => ->.
case h: (y <=q x) => /=; last by have := qc_le_total x y; rewrite h orbF => ->.
apply/esym/negbTE; apply: contra_notN ne => h2.
by apply: Qcle_antisym; apply/qc_leP.
Qed.

Definition qc_leMixin : realLeMixin qc_idomainType :=
  RealLeMixin qc_le0D qc_le0M qc_le0_anti qc_sub_ge0 (@qc_le_total 0%Qc)
              qc_normN qc_norm_ge0 qc_lt_def.

Canonical qc_porderType := POrderType ring_display Qc qc_leMixin.
Canonical qc_latticeType := LatticeType Qc qc_leMixin.
Canonical qc_distrLatticeType := DistrLatticeType Qc qc_leMixin.
Canonical qc_orderType := OrderType Qc qc_le_total.
Canonical qc_numDomainType := NumDomainType Qc qc_leMixin.
Canonical qc_normedZmodType := NormedZmodType Qc Qc qc_leMixin.
Canonical qc_numFieldType := [numFieldType of Qc].
Canonical qc_realDomainType := [realDomainType of Qc].
Canonical qc_realFieldType := [realFieldType of Qc].

(** Numerator and denominator in, numerators and denominators out. *)
Definition ratio (n : Z) (d : positive) : Qc := Q2Qc (Qmake n d).
Definition printed (l : seq Qc) : seq Z :=
  flatten (map (fun x : Qc => [:: Qnum x; Zpos (Qden x)]) l).
