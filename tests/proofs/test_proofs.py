"""The machine-checked proofs: the table is true, the development builds without assumptions, and the definitions the
theorems are about take the same values, to the last digit, as the package's exact mode.
"""

import re
import shutil
import subprocess
from collections import Counter
from fractions import Fraction
from numbers import Rational
from pathlib import Path

import numpy as np
import pytest

from mdsd_theory import drafts, optimal_acceptance, verifiers

ROOT = Path(__file__).parents[2]
PROOFS = ROOT / "proofs"
# A row of the table: theorem | source | `File.name` | `function` | `tests/file.py::test` (the last two may be "-").
ROW = re.compile(r"^\|[^|]*\|[^|]*\|\s*`([A-Z]\w*)\.(\w+)`\s*\|([^|]*)\|([^|]*)\|$", re.MULTILINE)
TABLE = ROW.findall((PROOFS / "README.md").read_text())

needs_coq = pytest.mark.skipif(
    shutil.which("coqc") is None,
    reason="coqc is not installed, so the proofs are not built: apt-get install coq libcoq-mathcomp-algebra "
    "libcoq-mathcomp-algebra-tactics",
)


def test_the_table_names_theorems_functions_and_tests_that_exist():
    assert len(TABLE) >= 40
    repeated = [name for name, times in Counter((file, name) for file, name, *_ in TABLE).items() if times > 1]
    assert not repeated
    for file, name, functions, tests in TABLE:
        source = (PROOFS / f"{file}.v").read_text()
        assert re.search(rf"^(Theorem|Lemma|Corollary) {name}\b", source, re.MULTILINE), f"{file}.{name}"
        for module, function in re.findall(r"`(mdsd_theory[\w.]*)\.(\w+)`", functions):
            path = ROOT / module.replace(".", "/")
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            assert re.search(rf"\b{function}\b", path.read_text()), f"{module}.{function}"
        for path, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests):
            assert f"def {test}(" in (ROOT / path).read_text(), f"{path}::{test}"


def test_nothing_is_admitted():
    sources = sorted(PROOFS.glob("*.v"))
    assert sources
    for source in sources:
        for word in ("Admitted", "admit", "Axiom", "Parameter", "Conjecture"):
            assert not re.search(rf"^\s*{word}\b", source.read_text(), re.MULTILINE), f"{source.name}: {word}"


@pytest.fixture(scope="module")
def built():
    """The compiled development; what `make -C proofs` printed."""
    done = subprocess.run(["make", "-C", str(PROOFS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@needs_coq
@pytest.mark.slow
def test_every_theorem_of_the_table_is_proved_without_assumptions(built):
    printed = re.findall(r"^Constant MDSD\.(\w+\.\w+)\n(?:  .*\n)*(.*)$", built, re.MULTILINE)
    assert dict(printed) == {f"{file}.{name}": "Closed under the global context" for file, name, *_ in TABLE}


@needs_coq
@pytest.mark.slow
def test_an_assumption_fails_the_build(built, tmp_path):
    """The check itself: an axiom under a named theorem and a theorem that does not exist must both fail."""
    for planted, table in [
        ("Axiom lie : 0 = 1. Theorem fact : 0 = 1. Proof. exact lie. Qed.", "Fact.fact"),
        ("Theorem fact : 0 = 0. Proof. exact eq_refl. Qed.", "Fact.other"),
    ]:
        copy = tmp_path / table
        copy.mkdir()
        shutil.copy(PROOFS / "Makefile", copy)
        (copy / "_CoqProject").write_text("-Q . MDSD\nFact.v\n")
        (copy / "README.md").write_text(f"| lie | source | `{table}` |\n")
        # The word itself is also searched for; hide it as the search does not read included files.
        (copy / "Fact.v").write_text("Load Planted.\n" if "Axiom" in planted else planted)
        (copy / "Planted.v").write_text(planted)
        done = subprocess.run(["make", "-C", str(copy)], capture_output=True, text=True)
        assert done.returncode != 0
        assert "rests on an assumption" in done.stdout or "not found" in done.stdout + done.stderr


# Distributions with zeros on either side, ties, equal and disjoint pairs, uneven masses.
INSTANCES = [
    ("1", "1"),
    ("1/2 1/2", "1/3 2/3"),
    ("1 0", "1/2 1/2"),
    ("0 1", "1 0"),
    ("1/2 1/3 1/6", "1/7 2/7 4/7"),
    ("1/7 2/7 4/7", "1/7 2/7 4/7"),
    ("2/5 2/5 1/5", "1/5 2/5 2/5"),
    ("0 3/4 1/4", "1/2 1/4 1/4"),
    ("3/10 3/10 4/10", "0 9/10 1/10"),
    ("1/100 98/100 1/100", "97/100 2/100 1/100"),
    ("1/4 1/4 1/4 1/4", "1/10 2/10 3/10 4/10"),
    ("0 1/2 1/2 0", "1/3 1/3 0 1/3"),
    ("12/37 1/37 4/37 20/37", "5/41 16/41 8/41 12/41"),
    ("1/999983 999981/999983 1/999983 0", "3/8 1/8 1/8 3/8"),
]


def fractions(text):
    return [Fraction(x) for x in text.split()]


def exact(p):
    array = np.empty(len(p), dtype=object)
    array[:] = p
    return array


def coq(value):
    """A Coq term for a Fraction, a truth value, a token or a list of them."""
    if isinstance(value, Fraction):
        return f"(ratio ({value.numerator}) {value.denominator})"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}%nat"
    return "[:: " + "; ".join(coq(x) for x in value) + "]" if len(value) else "[::]"


def evaluate(terms, folder):
    """The values of Coq terms of type `seq Qc`, each as a list of Fractions."""
    lines = [
        "From Coq Require Import ZArith QArith Qcanon.",
        "From mathcomp Require Import all_ssreflect all_algebra.",
        "From MDSD Require Import Rationals Exact ExactMinorant.",
        "Set Printing Depth 1000000. Open Scope Z_scope.",
        *(f"Eval vm_compute in printed {term}." for term in terms),
    ]
    source = folder / "values.v"
    source.write_text("\n".join(lines))
    done = subprocess.run(
        ["coqc", "-q", "-w", "none", "-Q", str(PROOFS), "MDSD", str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = re.findall(r"^\s*= (.*?)\n\s*: seq Z$", done.stdout, re.MULTILINE | re.DOTALL)
    assert len(answers) == len(terms)
    numbers = [[int(x) for x in re.findall(r"-?\d+", answer)] for answer in answers]
    return [[Fraction(n, d) for n, d in zip(row[::2], row[1::2], strict=True)] for row in numbers]


def draft_cases(q):
    """(draft, the formal law of its tuples as a Coq term)."""
    support = sum(x > 0 for x in q)
    for n in (1, 2, 3):
        yield drafts.make("with-replacement", exact(q), n), f"(exact_iid {coq(q)})"
        if n <= support:
            yield drafts.make("without-replacement", exact(q), n), f"(exact_wor {len(q)} {coq(q)})"
    for n, top in [(2, 1), (3, 1), (3, 2)]:
        if top < support:
            draft = drafts.make("top-then-sample", exact(q), n, top=top)
            yield draft, f"(exact_top {len(q)} {coq(q)} {coq(draft.top_tokens.tolist())})"


def kernel_cases(p, q, draft):
    """(verifier, its formal kernel as a Coq term) for the drafts it serves."""
    v, p, q = len(q), coq(p), coq(q)
    yield "naive", f"(fun _ => {p})"
    if draft.name == "with-replacement":
        yield "rrs", f"(exact_rrs_iid {v} {p} {q})"
        yield "convex-minorant", f"(exact_convex_minorant {v} {draft.n - 1} {p} {q})"
    if draft.name == "without-replacement":
        yield "rrs", f"(exact_rrs_wor {v} {p} {q})"
    if draft.name == "top-then-sample" and draft.sampled == 1:
        yield "greedy", f"(exact_greedy {v} {p} {q} {coq(draft.top_tokens.tolist())})"


@needs_coq
@pytest.mark.slow
@pytest.mark.parametrize(("p", "q"), INSTANCES)
def test_formal_definitions_and_exact_mode_agree_to_the_last_digit(p, q, built, tmp_path):
    p, q = fractions(p), fractions(q)
    v = len(p)
    terms, expected = [], []

    def same(term, values):
        terms.append(term)
        expected.append(list(values))

    for draft, law in draft_cases(q):
        best = optimal_acceptance(exact(p), draft)
        subset = best.subset.tolist()
        n = draft.n
        same(f"[:: exact_optimal {v} {n} {law} {coq(p)}]", [best.rate])
        same(f"[:: exact_mass {v} {coq(p)} {coq(subset)}]", [best.target_mass])
        same(f"[:: exact_qmass {v} {n} {law} {coq(subset)}]", [best.draft_mass])
        sets = [[bool(mask >> i & 1) for i in range(v)] for mask in range(2**v)]
        masses = [draft.subset_mass(np.array(s)) for s in sets]
        same(f"[seq exact_qmass {v} {n} {law} h | h <- {coq(sets)}]", masses)
        tokens, probability = draft.joint()
        same(f"[seq {law} t | t <- {coq(tokens.tolist())}]", probability)
        for name, kernel in kernel_cases(p, q, draft):
            verifier = verifiers.make(name)
            same(f"[:: exact_acceptance {v} {n} {law} {kernel}]", [verifier.acceptance_rate(exact(p), draft)])
            same(f"[seq exact_emitted {v} {n} {law} {kernel} j | j <- iota 0 {v}]", p)
            kernels = [verifier.kernel(exact(p), draft, x) for x in tokens]
            same(f"(flatten [seq {kernel} t | t <- {coq(tokens.tolist())}])", [x for row in kernels for x in row])
    assert all(isinstance(x, Rational) for row in expected for x in row)
    assert evaluate(terms, tmp_path) == expected


@needs_coq
@pytest.mark.slow
def test_formal_kseq_at_the_gamma_of_the_code(built, tmp_path):
    """gamma is irrational in general, so the code computes in floats: the formal kernel at the same gamma, exactly."""
    terms, expected = [], []
    for p, q in [("1/2 1/3 1/6", "1/7 2/7 4/7"), ("0 3/4 1/4", "1/2 1/4 1/4"), ("2/5 2/5 1/5", "1/5 2/5 2/5")]:
        p, q = fractions(p), fractions(q)
        for n in (1, 2, 3):
            draft = drafts.make("with-replacement", np.array(q, dtype=float), n)
            verifier, target = verifiers.make("kseq"), np.array(p, dtype=float)
            gamma = Fraction(verifier.prepare(target, draft).gamma)
            tokens, _ = draft.joint()
            kernel = f"(exact_kseq 3 {coq(p)} {coq(q)} {coq(gamma)})"
            terms.append(f"(flatten [seq {kernel} t | t <- {coq(tokens.tolist())}])")
            expected.append(np.concatenate([verifier.kernel(target, draft, x) for x in tokens]))
            terms.append(f"[:: exact_acceptance 3 {n} (exact_iid {coq(q)}) {kernel}]")
            expected.append(np.array([verifier.acceptance_rate(target, draft)]))
    for formal, code in zip(evaluate(terms, tmp_path), expected, strict=True):
        np.testing.assert_allclose(np.array(formal, dtype=float), code, atol=1e-13)
