(** * Drafts with replacement: x_1..x_n i.i.d. from q, so Q(H) = q(H)^n
    (theory, section 2). *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions QConvex.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section WithReplacement.
Variables (R : realFieldType) (V : finType).
Implicit Types (q : V -> R) (H : {set V}).

Definition iid q n (s : n.-tuple V) : R := \prod_(v <- s) q v.

(** Q(H) = q(H)^n. *)
Theorem qmass_iid q n H : qmass (iid q (n := n)) H = mass q H ^+ n.
Proof.
rewrite /qmass big_mkcond /=; elim: n => [|n IH].
  by rewrite sum_tuple0 /= /iid big_nil expr0.
rewrite sum_tuple_cons exprS -IH /mass big_distrl /= [RHS]big_mkcond /=.
apply: eq_bigr => v _; case: ifPn => vH; last by rewrite big1.
rewrite big_distrr /=; apply: eq_bigr => s _.
by rewrite /iid big_cons; case: ifP; rewrite ?mulr0.
Qed.

Lemma iid_dist q n : is_dist q -> is_dist (iid q (n := n)).
Proof.
move=> [q0 q1]; split=> [s|]; first by apply: prodr_ge0.
by rewrite -qmassT qmass_iid massT q1 expr1n.
Qed.

Lemma sum_all_iid q n (P : pred V) :
  \sum_(s : n.-tuple V) (if all P s then iid q s else 0) = (\sum_(v | P v) q v) ^+ n.
Proof.
have := qmass_iid q n [set v | P v]; rewrite qmassE /mass.
rewrite (eq_bigl P) => [<-|v]; last by rewrite inE.
apply: eq_bigr => s _; rewrite (@eq_all _ P (mem [set v | P v])) // => v.
by rewrite /= inE.
Qed.

Lemma qconvex_pow q n : (forall v, 0 <= q v) -> qconvex q (fun H => mass q H ^+ n).
Proof.
move=> q0; split=> [H x qx|H x y xH yH xy].
  have [xH|xH] := boolP (x \in H); first by rewrite (setUidPr _) // sub1set.
  by rewrite massU1 // qx add0r.
have yxH : y \notin x |: H by rewrite !inE negb_or yH eq_sym xy.
rewrite (massU1 q yxH) (massU1 q xH); set h := mass q H.
have h0 : 0 <= h by apply: mass_ge0.
rewrite !subrXX (_ : q x + h - h = q x); last by ring.
rewrite (_ : q y + (q x + h) - (q x + h) = q y); last by ring.
rewrite mulrCA ler_wpmul2l // ler_wpmul2l //.
apply: ler_sum => i _; apply: ler_pmul; rewrite ?exprn_ge0 ?addr_ge0 //.
  by apply: ler_expn2r; rewrite ?nnegrE ?addr_ge0 // ler_addr.
by apply: ler_expn2r; rewrite ?nnegrE ?addr_ge0 // ler_addr.
Qed.

(** Sampling with replacement is q-convex ([1], sec. 4). *)
Theorem qconvex_iid q n : (forall v, 0 <= q v) -> qconvex q (qmass (iid q (n := n))).
Proof.
move=> q0; have [null ch] := qconvex_pow n q0; split=> [H x qx|H x y xH yH xy].
  by rewrite !qmass_iid null.
by rewrite !qmass_iid; apply: ch.
Qed.

End WithReplacement.
