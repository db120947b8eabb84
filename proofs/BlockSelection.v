(** * Selecting a draft from the highest block (theory, section 4, steps 2 and 3 of
    the convex-minorant verifier).

    The tokens are cut into blocks, numbered [blk].  Take the highest block that
    contains a draft and pick one of the drafts in it uniformly, repeated tokens
    counting repeatedly. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions WithReplacement.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section BlockSelection.
Variables (R : realFieldType) (V : finType) (q : V -> R) (blk : V -> nat).

(** The probability of picking [v] from the drafts [s]. *)
Definition block_pick (s : seq V) (v : V) : R :=
  if all (fun y => blk y <= blk v)%N s
  then (count_mem v s)%:R / (count (fun y => blk y == blk v) s)%:R else 0.

Lemma block_pick_ge0 s v : 0 <= block_pick s v.
Proof. by rewrite /block_pick; case: ifP => // _; rewrite divr_ge0 ?ler0n. Qed.

Lemma block_pick_in s v : v \notin s -> block_pick s v = 0.
Proof.
by rewrite /block_pick => /count_memPn ->; rewrite mul0r if_same.
Qed.

Lemma sum_count (P : pred V) s : \sum_(v | P v) (count_mem v s)%:R = (count P s)%:R :> R.
Proof.
elim: s => [|x s IH] /=; first by rewrite big1.
rewrite natrD -IH (eq_bigr (fun v => (x == v)%:R + (count_mem v s)%:R)) => [|v _]; last by rewrite natrD.
rewrite big_split /=; congr (_ + _); rewrite big_mkcond (bigD1 x) //= eqxx.
rewrite big1 ?addr0 => [|v]; first by case: (P x).
by rewrite eq_sym => /negbTE ->; case: (P v).
Qed.

(* summed over one block: 1 when that block is the highest that is hit *)
Lemma sum_block_pick s b :
  \sum_(v | blk v == b) block_pick s v
  = (all (fun y => blk y <= b)%N s)%:R - (all (fun y => blk y < b)%N s)%:R.
Proof.
have [le|nle] := boolP (all (fun y => blk y <= b)%N s); last first.
  rewrite big1 => [|v /eqP bv]; last by rewrite /block_pick bv (negbTE nle).
  case lt: (all (fun y => blk y < b)%N s); last by rewrite subrr.
  by case/negP: nle; apply: sub_all lt => y /ltnW.
rewrite (eq_bigr (fun v => (count_mem v s)%:R / (count (fun y => blk y == b) s)%:R)); last first.
  by move=> v /eqP bv; rewrite /block_pick bv le.
rewrite -mulr_suml sum_count.
have [c0|c0] := posnP (count (fun y => blk y == b) s).
  rewrite c0 mul0r; have -> : all (fun y => blk y < b)%N s; last by rewrite subrr.
  apply/allP => y ys; rewrite ltn_neqAle (allP le y ys) andbT.
  by move/eqP: c0; rewrite -leqn0 leqNgt -has_count => /hasPn/(_ y ys).
rewrite divff ?pnatr_eq0 -?lt0n //; have -> : all (fun y => blk y < b)%N s = false.
  apply/negbTE/allPn; move: c0; rewrite -has_count => /hasP[y ys /eqP yb].
  by exists y => //; rewrite yb ltnn.
by rewrite subr0.
Qed.

(** It picks one of the drafts. *)
Lemma block_pick_dist n (s : n.+1.-tuple V) : is_dist (block_pick s).
Proof.
split=> [v|]; first exact: block_pick_ge0.
have [v0 v0s vmax] : exists2 v0, v0 \in tval s & all (fun y => blk y <= blk v0)%N s.
  rewrite (_ : tval s = thead s :: behead s); last by rewrite {1}(tuple_eta s).
  elim: (behead s) (thead s) => [|y t IH] x.
    by exists x; rewrite ?mem_head //= leqnn.
  have [z zs] := IH y; rewrite [all _ _]/= => /andP[yz hz].
  have [xz|zx] := leqP (blk x) (blk z).
    by exists z; [rewrite in_cons zs orbT | rewrite /= xz yz].
  exists x; first by rewrite mem_head.
  rewrite /= leqnn (leq_trans yz (ltnW zx)) /=.
  by apply: sub_all hz => w /leq_trans; apply; apply: ltnW.
rewrite (bigID (fun v => blk v == blk v0)) /= sum_block_pick vmax.
have -> : all (fun y => blk y < blk v0)%N s = false.
  by apply/negbTE/allPn; exists v0; rewrite ?ltnn.
rewrite subr0 big1 ?addr0 // => v nb; rewrite /block_pick; case: ifP => // /allP h.
suff /count_memPn -> : v \notin s by rewrite mul0r.
apply/negP => vs; case/negP: nb; rewrite eqn_leq (h _ v0s) andbT.
exact: (allP vmax).
Qed.

(* exchangeability: within a block, tokens are picked in proportion to q *)
Lemma iid_exchange n (P Q : pred V) (G : nat -> bool -> R) v w : P v = P w -> Q v = Q w ->
  q w * (\sum_(s : n.-tuple V) iid q s * ((count_mem v s)%:R * G (count P s) (all Q s)))
  = q v * (\sum_(s : n.-tuple V) iid q s * ((count_mem w s)%:R * G (count P s) (all Q s))).
Proof.
move=> Pvw Qvw; elim: n G => [|n IH] G.
  by rewrite !sum_tuple0 /= !mul0r !mulr0.
have e u : \sum_(s : n.+1.-tuple V) iid q s * ((count_mem u s)%:R * G (count P s) (all Q s))
  = q u * (\sum_(s : n.-tuple V) iid q s * G (P u + count P s)%N (Q u && all Q s))
    + \sum_x q x * (\sum_(s : n.-tuple V) iid q s
         * ((count_mem u s)%:R * G (P x + count P s)%N (Q x && all Q s))).
  rewrite sum_tuple_cons /=.
  pose F x (s : n.-tuple V) := q x * (iid q s * G (P x + count P s)%N (Q x && all Q s)).
  have -> : q u * (\sum_(s : n.-tuple V) iid q s * G (P u + count P s)%N (Q u && all Q s))
     = \sum_x \sum_(s : n.-tuple V) (x == u)%:R * F x s.
    rewrite [RHS](bigD1 u) //= eqxx [X in _ = _ + X]big1 ?addr0 => [|x /negbTE xu].
      by rewrite mulr_sumr; apply: eq_bigr => s _; rewrite mul1r.
    by rewrite big1 // => s _; rewrite xu mul0r.
  rewrite -big_split /=; apply: eq_bigr => x _.
  rewrite mulr_sumr -big_split /=; apply: eq_bigr => s _.
  by rewrite /iid big_cons -/(iid q s) /F natrD; ring.
rewrite !e !mulrDr; congr (_ + _); first by rewrite Pvw Qvw; ring.
rewrite !mulr_sumr; apply: eq_bigr => x _.
rewrite mulrCA [RHS]mulrCA; congr (_ * _).
exact: (IH (fun c a => G (P x + c)%N (Q x && a))).
Qed.

(** q-mass of the blocks up to that of [v], and strictly below it *)
Definition mass_upto v : R := \sum_(y | (blk y <= blk v)%N) q y.
Definition mass_below v : R := \sum_(y | (blk y < blk v)%N) q y.

Definition picked n v : R := \sum_(s : n.-tuple V) iid q s * block_pick s v.

(** On a block [a, b] of q-mass the picked token has density
    (b^n - a^n) / (b - a) per unit of q. *)
Theorem block_share n v :
  (mass_upto v - mass_below v) * picked n v
  = q v * (mass_upto v ^+ n - mass_below v ^+ n).
Proof.
have -> : mass_upto v - mass_below v = \sum_(w | blk w == blk v) q w.
  rewrite /mass_upto (bigID (fun y => blk y == blk v)) /=.
  rewrite [X in X + _ - _](eq_bigl (fun w => blk w == blk v)); last first.
    by move=> y; case: eqP => [->|_]; rewrite ?leqnn ?andbF.
  rewrite [X in _ + X - _](eq_bigl (fun y => (blk y < blk v)%N)) ?addrK // => y.
  by rewrite ltn_neqAle andbC.
rewrite mulr_suml (eq_bigr (fun w => q v * picked n w)) => [|w /eqP bw].
  rewrite -mulr_sumr; congr (_ * _); rewrite exchange_big /= /mass_upto /mass_below -!sum_all_iid -sumrB.
  apply: eq_bigr => s _; rewrite -mulr_sumr sum_block_pick.
  by case: (all _ s); case: (all _ s); rewrite /= ?subr0 ?sub0r ?subrr ?mulrN ?mulr1 ?mulr0.
pose G c (a : bool) : R := if a then c%:R^-1 else 0.
have pE u : blk u = blk v -> picked n u = \sum_(s : n.-tuple V) iid q s
    * ((count_mem u s)%:R * G (count (fun y => blk y == blk v) s) (all (fun y => blk y <= blk v)%N s)).
  move=> bu; apply: eq_bigr => s _; rewrite /block_pick bu /G.
  by case: ifP => _; rewrite ?mulr0.
by rewrite !pE // iid_exchange // bw.
Qed.

End BlockSelection.
