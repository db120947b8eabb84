"""The conformance kit: passes what is lossless, and catches what is not, for every way that verifiers go wrong."""

import functools
import re
import sys

import numpy as np
import pytest

from mdsd_theory import cli, commands, conformance, drafts, verifiers
from mdsd_theory.conformance import counting

# Every suite below raises a false alarm with probability below conformance.FALSE_ALARM = 1e-9; there are under 200.
# Coarser than the default, to be quick: an error of a mass of 0.12 instead of 0.03 is surely found. `-m slow` is
# finer on our verifiers.
COARSE, FINE = 0.12, 0.08


def normalised(mass, otherwise):
    total = mass.sum()
    return mass / total if total > 0 else otherwise


def draw(law, rng):
    """A token of positive mass: rng.choice, only faster."""
    return int((np.cumsum(law) <= rng.random() * law.sum()).sum())


def rrs(p, q, tokens, rng, *, without=False):
    """Recursive rejection as a user would write it, with or without replacement."""
    r, q = p, q.copy()
    for x in tokens:
        step = normalised(q, q)
        if rng.random() * step[x] < r[x]:
            return x
        r = normalised(np.maximum(r - step, 0), p)
        if without:
            q[x] = 0
    return draw(r, rng)


def rrs_without(p, q, tokens, rng):
    return rrs(p, q, tokens, rng, without=True)


# The verifiers that are wrong, one kind each.


def residual_not_renormalised(p, q, tokens, rng):
    r = p
    for x in tokens:
        if rng.random() * q[x] < r[x]:
            return x
        r = np.maximum(r - q, 0)
    return draw(normalised(r, p), rng)


def accepts_duplicates_twice(p, q, tokens, rng):
    """A repeated draft gets another chance against the p that has already been spent on it."""
    r, tried = p, set()
    for x in tokens:
        if rng.random() * q[x] < (p if x in tried else r)[x]:
            return x
        if x not in tried:
            r = normalised(np.maximum(r - q, 0), p)
        tried.add(x)
    return draw(r, rng)


def skips_duplicates(p, q, tokens, rng):
    """A repeated draft is not tried again, as if that cost nothing."""
    return rrs(p, q, np.unique(tokens), rng)


def wrong_order_of_subtraction(p, q, tokens, rng):
    r = p
    for x in tokens:
        if rng.random() * q[x] < r[x]:
            return x
        r = normalised(np.maximum(q - r, 0), p)
    return draw(r, rng)


def forgets_the_last_residual(p, q, tokens, rng):
    r = p
    for k, x in enumerate(tokens):
        if rng.random() * q[x] < r[x]:
            return x
        if k + 1 < len(tokens):
            r = normalised(np.maximum(r - q, 0), p)
    return draw(r, rng)


def samples_p_after_rejection(p, q, tokens, rng):
    token = rrs(p, q, tokens, rng)
    return token if token in tokens else draw(p, rng)


def float16_q(p, q, tokens, rng):
    return rrs(p, q.astype(np.float16).astype(np.float64), tokens, rng)


def float16_p(p, q, tokens, rng):
    return rrs(p.astype(np.float16).astype(np.float64), q, tokens, rng)


def float16_q_without(p, q, tokens, rng):
    return rrs(p, q.astype(np.float16).astype(np.float64), tokens, rng, without=True)


def next_draft_in_rank(p, q, tokens, rng):
    """Tests each draft, but hands back the one after it."""
    r = p
    for k, x in enumerate(tokens):
        if rng.random() * q[x] < r[x]:
            return tokens[(k + 1) % len(tokens)]
        r = normalised(np.maximum(r - q, 0), p)
    return draw(r, rng)


def never_tries_the_last_draft(p, q, tokens, rng):
    """The last draft is rejected unseen, yet its share of the residual is taken off."""
    r = p
    for k, x in enumerate(tokens):
        if k + 1 < len(tokens) and rng.random() * q[x] < r[x]:
            return x
        r = normalised(np.maximum(r - q, 0), p)
    return draw(r, rng)


def removes_the_wrong_rank(p, q, tokens, rng):
    """Without replacement, the draft taken out of q is one behind."""
    r, q = p, q.copy()
    for k, x in enumerate(tokens):
        step = normalised(q, q)
        if rng.random() * step[x] < r[x]:
            return x
        r = normalised(np.maximum(r - step, 0), p)
        if k > 0:
            q[tokens[k - 1]] = 0
    return draw(r, rng)


def after_top_p(mass):
    """The drafts were drawn from q; the ratio uses q after top-p."""

    def verifier(p, q, tokens, rng):
        order = np.argsort(-q, kind="stable")
        kept = order[: np.searchsorted(np.cumsum(q[order]), mass - 1e-12) + 1]
        nucleus = np.zeros_like(q)
        nucleus[kept] = q[kept]
        return rrs(p, nucleus / nucleus.sum(), tokens, rng)

    verifier.__name__ = f"after_top_p_{mass}"
    return verifier


def always_the_first_draft(p, q, tokens, rng):
    return tokens[0]


PLANTED = [
    (residual_not_renormalised, "with-replacement"),
    (accepts_duplicates_twice, "with-replacement"),
    (skips_duplicates, "with-replacement"),
    (rrs, "without-replacement"),
    (rrs_without, "with-replacement"),
    (wrong_order_of_subtraction, "with-replacement"),
    (forgets_the_last_residual, "with-replacement"),
    (samples_p_after_rejection, "with-replacement"),
    (next_draft_in_rank, "with-replacement"),
    (never_tries_the_last_draft, "with-replacement"),
    (removes_the_wrong_rank, "without-replacement"),
    *((after_top_p(mass), "with-replacement") for mass in (0.8, 0.9, 0.95, 0.99)),
    (always_the_first_draft, "with-replacement"),
    (float16_q_without, "without-replacement"),
]


@pytest.fixture
def quick(monkeypatch):
    """Leaves out the one case that takes most of the calls, and which only 16-bit rounding needs."""
    monkeypatch.setattr("mdsd_theory.conformance.report.CASES", [case for case in conformance.CASES if not case.paired])


@pytest.mark.parametrize(("verifier", "sampler"), PLANTED, ids=[f"{v.__name__}-{s}" for v, s in PLANTED])
@pytest.mark.usefixtures("quick")
def test_a_wrong_verifier_is_caught(verifier, sampler):
    report = conformance.suite(verifier, sampler, n=(1, 2), resolution=COARSE)
    assert not report.lossless
    assert "NOT LOSSLESS" in str(report)
    for run in report.failures:
        assert run.verdict.reason


def test_float16_is_caught_with_replacement_too(monkeypatch):
    # Off by 1/4000 of mass: only emitted token against first draft can tell, at the default resolution.
    (case,) = [case for case in conformance.CASES if case.paired]
    monkeypatch.setattr("mdsd_theory.conformance.report.CASES", (case,))
    for wrong in (float16_q, float16_p):
        (run,) = conformance.suite(wrong, n=(1,)).failures
        assert "replaced the first draft" in run.verdict.reason
    assert conformance.suite(rrs, n=(1,)).lossless


def test_float16_rounding_moves_the_mass_that_the_suite_looks_for():
    (case,) = [case for case in conformance.CASES if case.paired]
    assert case.p.sum() == 1.0
    moved = case.p.astype(np.float16).astype(np.float64) - case.p
    looked_for = case.paired * conformance.RESOLUTION
    assert min(np.maximum(moved, 0).sum(), np.maximum(-moved, 0).sum()) >= looked_for


@pytest.mark.parametrize(("verifier", "sampler"), [(rrs, "with-replacement"), (rrs_without, "without-replacement")])
def test_a_right_function_passes(verifier, sampler):
    assert conformance.suite(verifier, sampler, resolution=COARSE).lossless


def as_function(verifier, name, parameters):
    """One of ours as a user's function, that keeps what all draws at one position share."""
    held = {}

    def function(p, q, tokens, rng):
        key = (p.tobytes(), q.tobytes())
        if key not in held:
            draft = drafts.make(name, q, **parameters)
            held[key] = draft, verifier.prepare(p, draft)
        draft, state = held[key]
        return verifier.verify(p, draft, tokens, rng, state=state)

    return function


def compatible():
    """Every registered verifier with every sampler it serves, as (verifier, sampler, n of the function's drafts)."""
    for name in verifiers.NAMES:
        for sampler in drafts.NAMES:
            served = [
                draft
                for _, draft in conformance.drafts_for(sampler, conformance.CASES[0], (1, 2, 3))
                if verifiers.make(name).refusal(draft) is None
            ]
            if served:
                yield pytest.param(name, served[-1], id=f"{name}-{sampler}")


COMPATIBLE = list(compatible())


@pytest.mark.parametrize(("name", "draft"), COMPATIBLE)
def test_our_verifiers_pass_as_objects_exactly(name, draft):
    report = conformance.suite(verifiers.make(name), draft.name, resolution=0.6)
    assert report.lossless, str(report)
    assert all(run.verdict.exact and run.verdict.calls > 0 for run in report.runs)
    for run in report.runs:
        assert run.verdict.acceptance <= run.verdict.optimal + 1e-12


def passes_as_function(name, draft, resolution):
    fixed = draft.name in ("spechub", "independent", "joint")
    parameters = {} if fixed else {"n": draft.n}
    sampler = draft.name
    if sampler == "top-then-sample":
        parameters["top"] = draft.top
        sampler += f":{draft.top}"
    function = as_function(verifiers.make(name), draft.name, parameters)
    report = conformance.suite(function, sampler, n=(draft.n,), resolution=resolution)
    assert report.lossless, str(report)
    assert len(report.runs) >= len(conformance.CASES) - 1
    assert not any(run.verdict.exact for run in report.runs)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("name", "draft"), COMPATIBLE)
def test_our_verifiers_pass_as_functions_counted(name, draft):
    passes_as_function(name, draft, 0.6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "draft"), {param.values[0]: param for param in COMPATIBLE}.values())
def test_our_verifiers_pass_at_a_finer_resolution(name, draft):
    report = conformance.suite(verifiers.make(name), draft.name, resolution=FINE)
    assert report.lossless, str(report)
    passes_as_function(name, draft, FINE)


def test_every_verifier_and_every_sampler_is_among_the_compatible():
    assert {param.values[0] for param in COMPATIBLE} == set(verifiers.NAMES)
    assert {param.values[1].name for param in COMPATIBLE} == set(drafts.NAMES)


# Exact: what a kernel says is compared without chance.


class Object:
    """Our recursive rejection, to be spoilt."""

    def kernel(self, p, draft, tokens):
        return verifiers.make("rrs").kernel(p, draft, tokens)

    def verify(self, p, draft, tokens, rng):
        return verifiers.make("rrs").verify(p, draft, tokens, rng)


P, Q = np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1])


def verdict_of(verifier, n=2, p=P, **options):
    return conformance.check(verifier, p.copy(), drafts.WithReplacement(Q.copy(), n), resolution=0.1, **options)


def test_an_object_with_kernel_is_decided_exactly():
    verdict = verdict_of(Object())
    assert verdict.lossless
    assert verdict.exact
    assert verdict.calls > 0
    assert verdict.acceptance == pytest.approx(0.82, abs=1e-12)
    assert verdict.optimal == pytest.approx(0.89, abs=1e-12)
    assert str(verdict) == "lossless exactly; acceptance 0.82, alpha* = 0.89"


def test_a_class_is_made_into_an_object():
    assert verdict_of(Object).lossless


def test_an_object_with_verify_alone_is_counted():
    class VerifyOnly:
        def verify(self, p, draft, tokens, rng):
            return rrs(p, draft.q, tokens, rng)

    verdict = verdict_of(VerifyOnly)
    assert verdict.lossless
    assert not verdict.exact


def test_the_wrong_sampler_gives_the_known_law():
    # Without-replacement drafts of the reference pair given to the rule for i.i.d. ones: [.3, .525, .175].
    class WrongSampler:
        def kernel(self, p, draft, tokens):
            return verifiers.make("rrs").kernel(p, drafts.WithReplacement(draft.q, draft.n), tokens)

    verdict = conformance.check(WrongSampler, P, drafts.WithoutReplacement(Q, 2))
    assert (verdict.lossless, verdict.exact, verdict.token) == (False, True, 1)
    assert verdict.found == pytest.approx(0.525, abs=1e-12)
    assert "token 1 has mass 0.525 where p has 0.4 (off by +0.125)" in str(verdict)
    counted = conformance.check(rrs, P, drafts.WithoutReplacement(Q, 2))
    assert (counted.lossless, counted.exact, counted.token) == (False, False, 1)
    assert counted.found == pytest.approx(0.525, abs=0.02)


def test_float32_needs_its_own_tolerance():
    class Narrow:
        def kernel(self, p, draft, tokens):
            return verifiers.make("rrs").kernel(p, draft, tokens).astype(np.float32)

    assert not verdict_of(Narrow).lossless
    assert verdict_of(Narrow, tolerance=1e-6).lossless


def test_kernel_and_verify_must_agree():
    class Disagrees(Object):
        """Both lossless, but not the same verifier."""

        def verify(self, p, draft, tokens, rng):
            return draw(p, rng)

    verdict = verdict_of(Disagrees)
    assert "verify and kernel disagree: on drafts (" in verdict.reason


def test_kernel_must_answer_the_same_when_asked_again():
    class Forgetful(Object):
        asked = 0

        def kernel(self, p, draft, tokens):
            self.asked += 1
            return super().kernel(p, draft, tokens) if self.asked < 10 else p

    assert "answers differently when asked again" in verdict_of(Forgetful).reason


def test_a_wrong_acceptance_rate_is_told():
    class Boasts(Object):
        def acceptance_rate(self, p, draft):
            return 0.9

    assert verdict_of(Boasts).reason == "acceptance_rate returns 0.9 where its kernel accepts 0.82"


@pytest.mark.parametrize(
    ("law", "reason"),
    [
        (lambda p: np.array([0.5, np.nan, 0.5]), "kernel returns nan as the mass of a token on drafts (0, 0)"),
        (lambda p: np.array([0.5, 0.5]), "kernel returns shape (2,) on drafts (0, 0)"),
        (lambda p: np.array([1.2, -0.2, 0.0]), "kernel returns the mass -0.2 for token 1"),
        (lambda p: 2 * p, "kernel returns masses that sum to 2"),
        (lambda p: None, "kernel returns"),
        (lambda p: "token", "kernel returns 'token'"),
        (lambda p: p + 0j, "kernel returns array([0.3+0.j"),
        (lambda p: 1 / 0, "kernel raised ZeroDivisionError on drafts (0, 0): division by zero"),
    ],
    ids=["nan", "shape", "negative", "sum", "none", "text", "complex", "raises"],
)
def test_a_broken_kernel_is_told(law, reason):
    class Broken:
        def kernel(self, p, draft, tokens):
            return law(p)

    verdict = verdict_of(Broken)
    assert not verdict.lossless
    assert reason in verdict.reason


def zero(array):
    array[0] = 0.0


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda p, q, tokens, rng: 3, "returns token 3 on drafts ("),
        (lambda p, q, tokens, rng: -1, "returns token -1"),
        (lambda p, q, tokens, rng: np.nan, "returns nan"),
        (lambda p, q, tokens, rng: None, "returns None"),
        (lambda p, q, tokens, rng: (0, True), "returns (0, True)"),
        (lambda p, q, tokens, rng: 1.0, "returns 1.0"),
        (lambda p, q, tokens, rng: 2**70, "returns 1180591620717411303424"),
        (lambda p, q, tokens, rng: tokens[7], "raised IndexError on drafts ("),
        (lambda p, q, tokens, rng: sys.exit(0), "raised SystemExit on drafts ("),
        (lambda p, q, tokens, rng: (rrs(p, q, tokens, rng), zero(p))[0], "changes p in place"),
        (lambda p, q, tokens, rng: (rrs(p, q, tokens, rng), zero(q))[0], "changes q in place"),
        (lambda p, q, tokens, rng: (rrs(p, q, tokens, rng), tokens.fill(2))[0], "changes tokens in place"),
    ],
    ids=["beyond", "negative", "nan", "none", "pair", "float", "huge", "raises", "exits", "p", "q", "tokens"],
)
def test_a_breach_of_contract_is_told(function, reason):
    p, q = P.copy(), Q.copy()
    verdict = conformance.check(function, p, drafts.WithReplacement(q, 2), resolution=0.1)
    assert not verdict.lossless
    assert reason in verdict.reason
    assert (p.tobytes(), q.tobytes()) == (P.tobytes(), Q.tobytes())


def test_more_acceptance_than_possible_is_enough():
    """The count of accepted drafts is a test of its own: here neither tokens nor prefixes of p/q show the error."""
    p = np.full(200, 1 / 200)
    odd = np.where(np.arange(200) % 2 == 1, 1 / 100, 0.0)
    draft = drafts.Independent([np.eye(200)[0], odd])

    def second_draft(p, qs, tokens, rng):
        return rrs(p, qs[1], tokens[1:], rng)

    def accepts_too_much(p, qs, tokens, rng):
        return second_draft(p, qs, tokens, rng) if rng.random() < 0.9 else tokens[1]

    assert conformance.check(second_draft, p, draft, calls=20_000).lossless
    verdict = conformance.check(accepts_too_much, p, draft, calls=20_000)
    assert "more than any lossless verifier's 0.505" in verdict.reason


def test_a_large_vocabulary_is_counted():
    """Errors spread too thinly to be seen token by token show in all the tokens below some p/q."""
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.full(2000, 2.0)), rng.dirichlet(np.full(2000, 2.0))
    draft = drafts.WithReplacement(q, 1)
    for verifier in (verifiers.make("kseq"), rrs):
        verdict = conformance.check(verifier, p, draft, resolution=0.1)
        assert verdict.lossless
        assert not verdict.exact or verdict.calls > 0
    for wrong in (forgets_the_last_residual, never_tries_the_last_draft, always_the_first_draft):
        reason = conformance.check(wrong, p, draft, resolution=0.1).reason
        assert "tokens of smallest p/q came with frequency" in reason


def test_kernel_alone_on_a_large_vocabulary_is_bad_input():
    class KernelOnly:
        def kernel(self, p, draft, tokens):
            return p

    p = np.full(2000, 1 / 2000)
    with pytest.raises(ValueError, match="too many tuples"):
        conformance.check(KernelOnly, p, drafts.WithReplacement(p, 3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tokens, mass: (tokens[1:], mass[1:] / mass[1:].sum()), "drew (0, 0), to which joint() gives no"),
        (lambda tokens, mass: (tokens, mass[::-1]), "joint() gives probability"),
        (lambda tokens, mass: (tokens, mass / 2), "sum to 0.5, not 1"),
    ],
)
def test_a_sampler_that_contradicts_its_table_is_bad_input(change, message):
    """The fault of a sampler is not laid to the verifier."""

    class Lying(drafts.WithReplacement):
        def joint(self):
            return change(*super().joint())

    with pytest.raises(ValueError, match=re.escape(message)):
        conformance.check(verifiers.make("naive"), P, Lying(Q, 2))


@pytest.mark.parametrize(
    ("verifier", "options", "message"),
    [
        (3, {}, "verifier: found a int"),
        (lambda p, q: 0, {}, "cannot be called as"),
        (rrs, {"resolution": 0.0}, "resolution: 0.0"),
        (rrs, {"power": 1.0}, "power: 1.0"),
        (rrs, {"false_alarm": -1}, "false_alarm: -1"),
        (rrs, {"tolerance": np.nan}, "tolerance: nan"),
        (rrs, {"calls": 0}, "calls: 0"),
        (verifiers.make("spechub"), {}, "spechub cannot serve with-replacement"),
    ],
)
def test_bad_input_is_refused(verifier, options, message):
    with pytest.raises(ValueError, match=message):
        conformance.check(verifier, P, drafts.WithReplacement(Q, 2), **options)


@pytest.mark.parametrize(
    ("sampler", "n", "message"),
    [
        ("nonsense", (1,), "unknown name 'nonsense'"),
        ("spechub", (3,), "spechub has no such drafts"),
        ("greedy:1", (1,), "only top-then-sample"),
        ("top-then-sample:x", (1,), "integer >= 0"),
        ("top-then-sample", (1,), "a function is not told"),
        ("greedy", (), "n: none"),
        ("joint", (30,), "n: 30; a table over"),
    ],
)
def test_a_suite_of_nothing_is_refused(sampler, n, message):
    with pytest.raises(ValueError, match=message):
        conformance.suite(rrs, sampler, n=n)


# The statistics: their levels and powers are what they claim.


def test_the_levels_are_exact():
    """By enumeration of all counts: the test rejects with probability at most its level, and nearly so."""
    from scipy.stats import binom

    for calls, mass, level in [(50, 0.3, 0.01), (400, 0.01, 1e-4), (2000, 0.5, 1e-6), (30, 0.999, 1e-3)]:
        counts = np.arange(calls + 1)
        rejected = counting.surprise(counts, calls, mass) < level
        assert binom.pmf(counts, calls, mass)[rejected].sum() < level
    assert counting.surprise([0, 1], 1000, 0.0).tolist() == [1.0, 0.0]
    assert counting.surprise([1000, 999], 1000, 1.0).tolist() == [1.0, 0.0]
    assert counting.difference_surprise(0, 0) == 1.0
    assert counting.difference_surprise(30, 0) == pytest.approx(2.0**-29)


@pytest.mark.parametrize("p", [[0.5, 0.5], [0.3, 0.4, 0.3], [0.999, 0.001], [1.0, 0.0]])
@pytest.mark.parametrize(("resolution", "level", "power"), [(0.03, 1e-12, 0.99), (0.1, 1e-3, 0.9), (0.01, 1e-9, 0.5)])
def test_the_power_is_what_it_claims(p, resolution, level, power):
    """By enumeration of all counts under every error of the size `resolution`, and 20 % fewer calls are too few."""
    from scipy.stats import binom

    def least_power(calls):
        counts = np.arange(calls + 1)
        powers = [
            binom.pmf(counts, calls, wrong)[counting.surprise(counts, calls, mass) < level].sum()
            for mass in p
            for wrong in (mass - resolution, mass + resolution)
            if 0 <= wrong <= 1
        ]
        return min(powers)

    calls = counting.sample_size(np.array(p), resolution, level, power)
    assert least_power(calls) >= power - 1e-12
    assert least_power(int(0.8 * calls)) < power


def test_the_default_false_alarm_is_below_one_in_a_million():
    assert conformance.FALSE_ALARM < 1e-6
    report = conformance.suite(rrs, n=(1,), resolution=0.5, false_alarm=1e-7)
    assert report.false_alarm == 1e-7


@pytest.mark.parametrize("false_alarm", [0.02, 0.3])
def test_a_lossless_verifier_fails_no_more_often_than_said(false_alarm):
    """400 suites of a right verifier; this test itself is wrong less than once in 1e9 runs."""
    from scipy.stats import binom

    draft = drafts.WithReplacement(Q, 2)

    def fails(seed):
        try:
            return not conformance.check(rrs, P, draft, false_alarm=false_alarm, resolution=0.4, seed=seed).lossless
        except ValueError as error:  # the sampler's own test takes its share of the level
            return "sample()" in str(error)

    failed = sum(fails(seed) for seed in range(400))
    assert failed <= binom.isf(1e-9, 400, false_alarm)
    assert failed > 0 or false_alarm < 0.1


def test_same_seed_same_verdict():
    assert verdict_of(rrs, seed=3) == verdict_of(rrs, seed=3)
    assert verdict_of(rrs, seed=3) != verdict_of(rrs, seed=4)


# The command.

SOURCE = """
import numpy as np

def lossless(p, q, tokens, rng):
    r = p
    for x in tokens:
        if rng.random() * q[x] < r[x]:
            return x
        r = np.maximum(r - q, 0)
        r = r / r.sum() if r.sum() > 0 else p
    return rng.choice(p.size, p=r)

def wrong(p, q, tokens, rng):
    return tokens[0]

class Exact:
    def kernel(self, p, draft, tokens):
        return p

class Needs:
    def __init__(self, argument):
        pass

number = 3
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs `mdsd check ...` in a folder that holds user_module.py; returns exit status, output and errors."""
    (tmp_path / "user_module.py").write_text(SOURCE)
    (tmp_path / "exits.py").write_text("raise SystemExit(0)")
    (tmp_path / "fails_to_import.py").write_text("import module_that_is_not_there")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(conformance, "suite", functools.partial(conformance.suite, resolution=0.3))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["mdsd", "check", *arguments])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        monkeypatch.delitem(sys.modules, "user_module", raising=False)
        return exit.value.code, *capsys.readouterr()

    def build():
        import typer

        app = typer.Typer()
        app.callback()(lambda: None)
        app.command("check")(commands.check)
        return app

    monkeypatch.setattr(cli, "build", build)
    return run


def test_command_passes_a_lossless_function(run):
    status, out, err = run("user_module:lossless", "--sampler", "with-replacement", "--n", "1")
    assert (status, err) == (0, "")
    assert "LOSSLESS in 17 cases as far as counting tells" in out
    assert "1e-09" in out


def test_command_tells_what_is_wrong(run):
    status, out, err = run("user_module:wrong", "--n", "2")
    assert (status, err) == (1, "")
    assert "reference pair, n = 2: token 0 came with frequency 0." in out
    assert "where p has 0.3" in out
    assert "NOT LOSSLESS: " in out


def test_command_takes_objects_and_names(run):
    status, out, _ = run("user_module:Exact", "--sampler", "joint", "--n", "1,2")
    assert status == 0
    assert "exactly by enumeration" in out
    status, out, _ = run("greedy", "--sampler", "spechub")
    assert status == 0
    status, out, _ = run("single-draft", "--n", "1,2")
    assert status == 0
    assert "not served: n = 2: it verifies exactly one token" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_module:f"], "importing no_such_module raised ModuleNotFoundError"),
        (["fails_to_import:f"], "importing fails_to_import raised ModuleNotFoundError: No module named 'module_that"),
        (["user_module:missing"], "user_module has no missing"),
        (["user_module:number"], "found a int; allowed are a callable"),
        (["user_module:Needs"], "Needs() raised TypeError"),
        (["user_module"], "unknown name 'user_module'"),
        (["user_module:"], "allowed are module:attribute"),
        (["./user_module.py:lossless"], "allowed are module:attribute, the module as Python imports it"),
        (["user_module.py:lossless"], "'user_module' is not a package"),
        (["exits:f"], "importing exits raised SystemExit"),
        (["kseq", "--sampler", "greedy", "--n", "2"], "kseq cannot serve greedy drafts"),
        (["kseq", "--sampler", "urn"], "unknown name 'urn'"),
        (["kseq", "--n", "0"], "--n: found '0'"),
        (["kseq", "--n", "two"], "--n: found 'two'"),
        (["kseq", "--seed", "-1"], "--seed"),
        ([], "Missing argument"),
    ],
)
def test_command_refuses_bad_input_in_one_line(run, arguments, message):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_importing_the_package_does_not_import_scipy_stats():
    import subprocess

    code = "import sys, mdsd_theory.commands, mdsd_theory; print('scipy.stats' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
