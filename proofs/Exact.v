(** * The definitions as programs on lists of numbers, and their equality with the
    definitions the theorems are about.

    Tokens are 0..v-1, distributions are lists of length v, draft tuples are lists of
    tokens, sets are lists of Booleans.  Evaluated over the rationals these are the
    values that the exact mode of the code is compared with. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp.algebra_tactics Require Import ring.
From MDSD Require Import Definitions Duality QConvex WithReplacement WithoutReplacement SingleDraft TopThenSample RecursiveRejection KSeq Greedy.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Exact.
Variables (R : realFieldType) (v : nat).
Notation V := ('I_v).
Implicit Types (p q r : seq R) (h : seq bool) (t : seq nat).

(** The function and the set that lists stand for. *)
Definition law p : V -> R := fun i => nth 0 p i.
Definition tokens h : {set V} := [set i : V | nth false h i].

(** ** Sums *)

Definition total (l : seq R) : R := foldr +%R 0 l.
Definition token_sum (f : nat -> R) : R := total [seq f i | i <- iota 0 v].

Fixpoint tuples (n : nat) : seq (seq nat) :=
  if n is m.+1 then [seq i :: t | i <- iota 0 v, t <- tuples m] else [:: [::]].
Definition tuple_sum n (f : seq nat -> R) : R := total [seq f t | t <- tuples n].

Lemma totalE l : total l = \sum_(x <- l) x.
Proof. by elim: l => [|x l IH]; rewrite ?big_nil // big_cons -IH. Qed.

Lemma token_sumE (f : nat -> R) : \sum_(i : V) f (val i) = token_sum f.
Proof. by rewrite /token_sum totalE big_map /= -(big_mkord xpredT f) /index_iota subn0. Qed.

Lemma tuple_sumE n (f : seq nat -> R) : \sum_(s : n.-tuple V) f (map val s) = tuple_sum n f.
Proof.
rewrite /tuple_sum totalE big_map; elim: n f => [|n IH] f.
  by rewrite sum_tuple0 /= big_seq1.
rewrite sum_tuple_cons /= big_allpairs_dep /=.
rewrite (eq_bigr (fun i : V => \sum_(t <- tuples n) f (val i :: t))) => [|i _].
  by rewrite (token_sumE (fun i => \sum_(t <- tuples n) f (i :: t))) /token_sum totalE big_map.
by rewrite -(IH (fun t => f (val i :: t))).
Qed.

(** ** P(H), Q(H) and the optimum *)

Definition exact_mass p h : R := token_sum (fun i => if nth false h i then nth 0 p i else 0).

Definition exact_qmass n (pd : seq nat -> R) h : R :=
  tuple_sum n (fun t => if all (nth false h) t then pd t else 0).

Fixpoint subsets (n : nat) : seq (seq bool) :=
  if n is m.+1 then [seq b :: h | b <- [:: false; true], h <- subsets m] else [:: [::]].

Definition exact_optimal n (pd : seq nat -> R) p : R :=
  1 + foldr Num.min 0 [seq exact_mass p h - exact_qmass n pd h | h <- subsets v].

Theorem exact_massE p h : mass (law p) (tokens h) = exact_mass p h.
Proof.
rewrite /mass big_mkcond /exact_mass -token_sumE; apply: eq_bigr => i _.
by rewrite inE.
Qed.

Section Drafts.
Variables (n : nat) (PD : n.-tuple V -> R) (pd : seq nat -> R).
Hypothesis PDE : forall s, PD s = pd (map val s).

Theorem exact_qmassE h : qmass PD (tokens h) = exact_qmass n pd h.
Proof.
rewrite qmassE /exact_qmass -tuple_sumE; apply: eq_bigr => s _; rewrite PDE all_map.
by congr (if _ then _ else _); apply: eq_all => i; rewrite /= inE.
Qed.

Lemma subsetsP (H : {set V}) : exists2 h, h \in subsets v & H = tokens h.
Proof.
exists [seq (i \in H) | i <- enum V]; last first.
  by apply/setP => i; rewrite inE (nth_map i) ?size_enum_ord ?ltn_ord // nth_ord_enum.
have : size [seq (i \in H) | i <- enum V] = v by rewrite size_map size_enum_ord.
elim: (v) [seq _ | i <- _] => [|m IH] [|b l] //= [sl].
by have := IH l sl; case: b => ll; rewrite !mem_cat map_f ?orbT.
Qed.

Theorem exact_optimalE p : optimal_acceptance PD (law p) = exact_optimal n pd p.
Proof.
rewrite /optimal_acceptance /exact_optimal; congr (1 + _).
have -> (l : seq R) : foldr Num.min 0 l = \big[Num.min/0]_(x <- l) x.
  by elim: l => [|x l IH]; rewrite ?big_nil // big_cons -IH.
rewrite [RHS]big_map; apply/eqP; rewrite eq_le; apply/andP; split.
  have [->|[h _ ->]] := bigmin_mem (fun h => exact_mass p h - exact_qmass n pd h) 0 (subsets v).
    set r := index_enum _; elim: r => [|H r IH]; first by rewrite big_nil.
    by rewrite big_cons le_minl IH orbT.
  by rewrite -exact_massE -exact_qmassE; apply: bigmin_le; rewrite mem_index_enum.
have [->|[H _ ->]] := bigmin_mem (fun H => mass (law p) H - qmass PD H) 0 (index_enum [finType of {set V}]).
  elim: (subsets v) => [|h r IH]; first by rewrite big_nil.
  by rewrite big_cons le_minl IH orbT.
have [h hs ->] := subsetsP H; rewrite exact_massE exact_qmassE.
exact: bigmin_le.
Qed.

(** ** Acceptance and law of a verifier *)

Definition exact_acceptance (k : seq nat -> seq R) : R :=
  tuple_sum n (fun t => pd t * let r := k t in token_sum (fun i => if i \in t then nth 0 r i else 0)).

Definition exact_emitted (k : seq nat -> seq R) (j : nat) : R :=
  tuple_sum n (fun t => pd t * nth 0 (k t) j).

Variables (K : n.-tuple V -> V -> R) (k : seq nat -> seq R).
Hypothesis KE : forall s i, K s i = law (k (map val s)) i.

Theorem exact_acceptanceE : acceptance PD K = exact_acceptance k.
Proof.
rewrite /acceptance /exact_acceptance -tuple_sumE; apply: eq_bigr => s _; rewrite PDE.
congr (_ * _); rewrite -token_sumE big_mkcond; apply: eq_bigr => i _.
by rewrite KE (mem_map val_inj).
Qed.

Theorem exact_emittedE (j : V) : emitted PD K j = exact_emitted k j.
Proof.
by rewrite /emitted /exact_emitted -tuple_sumE; apply: eq_bigr => s _; rewrite PDE KE.
Qed.

End Drafts.

(** ** Laws of the drafts *)

Definition exact_iid q t : R := foldr (fun i x => nth 0 q i * x) 1 t.

Fixpoint exact_wor_weight q t (W : R) : R :=
  if t is i :: t' then
    if i \in t' then 0 else nth 0 q i / W * exact_wor_weight q t' (W - nth 0 q i)
  else 1.
Definition exact_wor q t : R := exact_wor_weight q t (token_sum (nth 0 q)).

Definition exact_rest q (top : seq nat) : seq R :=
  let W := token_sum (fun i => if i \in top then 0 else nth 0 q i) in
  mkseq (fun i => if i \in top then 0 else nth 0 q i / W) v.

Definition exact_top q (top : seq nat) t : R :=
  if take (size top) t == top then exact_iid (exact_rest q top) (drop (size top) t) else 0.

Lemma exact_iidE q n (s : n.-tuple V) : iid (law q) s = exact_iid q (map val s).
Proof.
rewrite /iid; elim: (tval s) => [|i t IH]; rewrite ?big_nil // big_cons IH //.
Qed.

Lemma exact_worE q n (s : n.-tuple V) : wor (law q) s = exact_wor q (map val s).
Proof.
rewrite /wor /exact_wor -token_sumE.
elim: (tval s) (\sum_i _) => [|i t IH] W //=.
by rewrite (mem_map val_inj); case: ifP => // _; rewrite IH.
Qed.

Lemma exact_restE q c (top : c.-tuple V) i : rest (law q) top i = law (exact_rest q (map val top)) i.
Proof.
rewrite /law nth_mkseq // (mem_map val_inj) /rest; case: ifP => // _; congr (_ / _).
rewrite -token_sumE big_mkcond; apply: eq_bigr => j _.
by rewrite (mem_map val_inj); case: (j \in top).
Qed.

Lemma exact_topE q c (top : c.-tuple V) m (s : (c + m).-tuple V) :
  top_then_sample (law q) top s = exact_top q (map val top) (map val s).
Proof.
rewrite /top_then_sample /exact_top size_map size_tuple -map_take -map_drop.
rewrite (inj_eq (inj_map val_inj)); case: ifP => // _.
elim: (drop c s) => [|i t IH]; rewrite ?big_nil // big_cons IH exact_restE //.
Qed.

(** ** Kernels *)

Definition exact_accept p q i : R := Num.min 1 (nth 0 p i / nth 0 q i).

Definition exact_residual p q : seq R :=
  let d := mkseq (fun i => pos (nth 0 p i - nth 0 q i)) v in
  let m := total d in
  if m == 0 then p else mkseq (fun i => nth 0 d i / m) v.

Definition exact_accept_or (a : R) (r : seq R) (i : nat) : seq R :=
  mkseq (fun j => a * (i == j)%:R + (1 - a) * nth 0 r j) v.

Lemma exact_acceptE p q (i : V) : accept (law p) (law q) i = exact_accept p q i.
Proof. by []. Qed.

Lemma exact_residualE p q i : residual (law p) (law q) i = law (exact_residual p q) i.
Proof.
have mE : residual_mass (law p) (law q) = token_sum (fun i => pos (nth 0 p i - nth 0 q i)).
  by rewrite -token_sumE.
rewrite /residual mE /exact_residual /law -[total _]/(token_sum _).
by case: ifP => // _; rewrite nth_mkseq // nth_mkseq.
Qed.

Lemma exact_accept_orE a (f : V -> R) r i j : (forall j, f j = law r j) ->
  a i * (i == j)%:R + (1 - a i) * f j = law (exact_accept_or (a i) r i) j.
Proof. by move=> e; rewrite /law nth_mkseq // e. Qed.

(** Recursive rejection: [qs] gives the next draft's law from the history. *)
Fixpoint exact_rrs (qs : seq nat -> seq R) (past : seq nat) r t : seq R :=
  if t is x :: t' then
    let q := qs past in
    let a := exact_accept r q x in
    exact_accept_or a (exact_rrs qs (rcons past x) (exact_residual r q) t') x
  else r.

Lemma rrs_ext (QS : seq V -> V -> R) past (r1 r2 : V -> R) (s : seq V) :
  r1 =1 r2 -> rrs QS past r1 s =1 rrs QS past r2 s.
Proof.
elim: s past r1 r2 => //= x s IH past r1 r2 e i.
have eres : residual r1 (QS past) =1 residual r2 (QS past).
  move=> j; rewrite /residual.
  have -> : residual_mass r1 (QS past) = residual_mass r2 (QS past).
    by apply: eq_bigr => k _; rewrite e.
  by rewrite !e.
by rewrite /accept_or /accept e (IH _ _ _ eres).
Qed.

Theorem exact_rrsE (QS : seq V -> V -> R) qs : (forall past i, QS past i = law (qs (map val past)) i) ->
  forall (s past : seq V) p i,
  rrs QS past (law p) s i = law (exact_rrs qs (map val past) p (map val s)) i.
Proof.
move=> QE; elim=> [|x s IH] past p i //=.
have eres j : residual (law p) (QS past) j = law (exact_residual p (qs (map val past))) j.
  rewrite -exact_residualE /residual /residual_mass.
  rewrite (eq_bigr (fun k => pos (law p k - law (qs (map val past)) k))) => [|k _]; last by rewrite QE.
  by rewrite QE.
rewrite /accept_or (rrs_ext _ _ _ eres) IH map_rcons /law nth_mkseq //.
by rewrite /accept QE.
Qed.

Definition exact_wor_next q (past : seq nat) : seq R :=
  let W := token_sum (fun i => if i \in past then 0 else nth 0 q i) in
  mkseq (fun i => if i \in past then 0 else nth 0 q i / W) v.

Lemma exact_wor_nextE q past i : wor_next (law q) past i = law (exact_wor_next q (map val past)) i.
Proof.
rewrite /law nth_mkseq // (mem_map val_inj) /wor_next; case: ifP => // _; congr (_ / _).
rewrite -token_sumE big_mkcond; apply: eq_bigr => j _.
by rewrite (mem_map val_inj); case: (j \in past).
Qed.

Definition exact_rrs_iid p q t : seq R := exact_rrs (fun _ => q) [::] p t.
Definition exact_rrs_wor p q t : seq R := exact_rrs (exact_wor_next q) [::] p t.

Theorem exact_rrs_iidE p q n (s : n.-tuple V) i :
  rrs (fun _ => law q) [::] (law p) s i = law (exact_rrs_iid p q (map val s)) i.
Proof. by rewrite (exact_rrsE (qs := fun _ => q)). Qed.

Theorem exact_rrs_worE p q n (s : n.-tuple V) i :
  rrs (wor_next (law q)) [::] (law p) s i = law (exact_rrs_wor p q (map val s)) i.
Proof. by rewrite (exact_rrsE (exact_wor_nextE q)). Qed.

(** K-SEQ with a given gamma. *)
Fixpoint exact_kseq p q (g : R) t : seq R :=
  let gq := mkseq (fun i => g * nth 0 q i) v in
  if t is x :: t' then exact_accept_or (exact_accept p gq x) (exact_kseq p q g t') x
  else exact_residual p gq.

Theorem exact_kseqE p q g (s : seq V) i :
  kseq (law p) (law q) g s i = law (exact_kseq p q g (map val s)) i.
Proof.
have gE j : scaled (law q) g j = law (mkseq (fun i => g * nth 0 q i) v) j.
  by rewrite /law nth_mkseq.
elim: s i => [|x s IH] i /=.
  rewrite -exact_residualE /residual /residual_mass gE.
  by rewrite (eq_bigr (fun k => pos (law p k - law (mkseq (fun i => g * nth 0 q i) v) k))) => [|k _]; rewrite ?gE.
by rewrite /accept_or IH /law nth_mkseq // /accept gE.
Qed.

Definition exact_kseq_b p q (g : R) : R := token_sum (fun i => Num.min (nth 0 q i) (nth 0 p i / g)).

Lemma exact_kseq_bE p q g : kseq_b (law p) (law q) g = exact_kseq_b p q g.
Proof. by rewrite /exact_kseq_b -token_sumE. Qed.

(** Greedy: fixed tokens, then one draw. *)
Definition exact_greedy p q (top : seq nat) t : seq R :=
  if drop (size top) t is x :: _ then
    let q' := exact_rest q top in
    exact_accept_or (exact_accept p q' x) (exact_residual p q') x
  else p.

Theorem exact_greedyE p q c (top : c.-tuple V) (s : (c + 1).-tuple V) i :
  greedy (law p) (law q) top s i = law (exact_greedy p q (map val top) (map val s)) i.
Proof.
rewrite /greedy /exact_greedy size_map size_tuple -map_drop; case: (drop c s) => [|x l] //=.
rewrite /accept_or /law nth_mkseq // /accept exact_restE.
have -> : residual (law p) (rest (law q) top) i = law (exact_residual p (exact_rest q (map val top))) i.
  rewrite -exact_residualE /residual /residual_mass exact_restE.
  by rewrite (eq_bigr (fun k => pos (law p k - law (exact_rest q (map val top)) k))) => [|k _]; rewrite ?exact_restE.
by [].
Qed.

End Exact.
