"""Every verifier with every sampler it serves, by enumeration: lossless, its stated rate, never above alpha*."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mdsd_theory import drafts, optimal_acceptance, verifiers
from tests.theory.strategies import drafted

SETTINGS = settings(max_examples=150, deadline=None)
# Verifiers whose rate is alpha* with every sampler they serve.
OPTIMAL = ("convex-minorant", "greedy", "spechub", "single-draft", "transport")
# One chi-square per verifier and sampler below; 60 of them raise a false alarm less than once in 10**7 runs.
LEVEL = 1e-9


def serving(draft):
    return [v for v in map(verifiers.make, verifiers.NAMES) if v.refusal(draft) is None and small_enough(v, draft)]


def small_enough(verifier, draft):
    """The LP behind `transport` is tested on its own; here it would only be slow."""
    return verifier.name != "transport"


def enumerated(verifier, p, draft):
    """The law of the emitted token and the acceptance rate, summed over all draft tuples."""
    state = verifier.prepare(p, draft)
    tokens, probability = draft.joint()
    kernels = np.array([verifier.kernel(p, draft, x, state) for x in tokens])
    accepted = np.array([k[np.unique(x)].sum() for k, x in zip(kernels, tokens, strict=True)])
    conditional = np.array([verifier.acceptance(p, draft, x, state) for x in tokens])
    np.testing.assert_allclose(conditional, accepted, atol=1e-12)
    assert kernels.min() >= -1e-15
    np.testing.assert_allclose(kernels.sum(axis=1), 1.0, atol=1e-12)
    return probability @ kernels, probability @ accepted


@SETTINGS
@given(drafted(max_size=5, max_n=4))
def test_lossless_with_the_stated_rate(case):
    p, draft = case
    best = optimal_acceptance(p, draft).rate
    for verifier in serving(draft):
        law, rate = enumerated(verifier, p, draft)
        np.testing.assert_allclose(law, p, atol=1e-10, err_msg=verifier.name)
        assert rate == pytest.approx(verifier.acceptance_rate(p, draft), abs=1e-12), verifier.name
        assert rate <= best + 1e-12, verifier.name
        if verifier.name in OPTIMAL:
            assert rate == pytest.approx(best, abs=1e-12), verifier.name
        if verifier.name == "kseq":
            assert rate >= (1 - 1 / np.e) * best - 1e-12


@SETTINGS
@given(drafted(max_size=5, max_n=4))
def test_inputs_are_left_alone_and_the_law_repeats(case):
    p, draft = case
    before = p.copy(), np.array(draft.q, copy=True)
    tokens = draft.sample(np.random.default_rng(0), 1)[0]
    for verifier in serving(draft):
        first = verifier.kernel(p, draft, tokens)
        token = verifier.verify(p, draft, tokens, np.random.default_rng(3))
        assert p.tobytes() == before[0].tobytes()
        assert np.asarray(draft.q).tobytes() == before[1].tobytes()
        assert verifier.kernel(p, draft, tokens).tobytes() == first.tobytes()
        assert verifier.verify(p, draft, tokens, np.random.default_rng(3)) == token


P = np.array([0.05, 0.3, 0.2, 0.0, 0.25, 0.2])
Q = np.array([0.3, 0.25, 0.1, 0.15, 0.2, 0.0])
SAMPLERS = {
    "with-replacement": drafts.WithReplacement(Q, 3),
    "without-replacement": drafts.WithoutReplacement(Q, 3),
    "one": drafts.WithReplacement(Q, 1),
    "greedy": drafts.Greedy(Q, 3),
    "top-then-sample": drafts.TopThenSample(Q, 4, 1),
    "deterministic": drafts.TopThenSample(Q, 2, 2),
    "spechub": drafts.SpecHub(Q),
    "independent": drafts.Independent([Q, Q[::-1].copy()]),
}
PAIRS = [(name, v.name) for name, draft in SAMPLERS.items() for v in serving(draft)]


@pytest.mark.parametrize(("sampler", "name"), PAIRS)
def test_verify_draws_from_the_kernel(sampler, name):
    """For one drawn tuple, 4,000 emitted tokens against the kernel."""
    draft, verifier = SAMPLERS[sampler], verifiers.make(name)
    rng = np.random.default_rng(11)
    for tokens in draft.sample(rng, 3):
        state = verifier.prepare(P, draft)
        kernel = verifier.kernel(P, draft, tokens, state)
        counts = np.bincount([verifier.verify(P, draft, tokens, rng, state) for _ in range(4000)], minlength=P.size)
        possible = kernel > 1e-14
        assert counts[~possible].sum() == 0
        if possible.sum() > 1:
            assert stats.chisquare(counts[possible], 4000 * kernel[possible] / kernel.sum()).pvalue > LEVEL / 3


def test_the_chi_square_above_catches_a_wrong_verifier():
    """A law that is off by 15 per cent of p, as a residual that is not renormalised leaves it."""
    draft, verifier = SAMPLERS["with-replacement"], verifiers.make("rrs")
    rng = np.random.default_rng(11)
    tokens = draft.sample(rng, 1)[0]
    kernel = verifier.kernel(P, draft, tokens)
    wrong = 0.85 * kernel + 0.15 * P
    counts = rng.multinomial(4000, wrong)
    possible = kernel > 1e-14
    caught = counts[~possible].sum() > 0 or (
        stats.chisquare(counts[possible], 4000 * kernel[possible] / kernel[possible].sum()).pvalue < LEVEL
    )
    assert caught


ALLOWED = {
    "naive": set(SAMPLERS),
    "single-draft": {"one"},
    "rrs": {"with-replacement", "without-replacement", "one", "independent"},
    "kseq": {"with-replacement", "one"},
    "greedy": {"greedy", "spechub", "deterministic", "one"},
    "spechub": {"spechub"},
    "convex-minorant": {
        "with-replacement",
        "one",
        "greedy",
        "top-then-sample",
        "deterministic",
        "spechub",
    },
}


@pytest.mark.parametrize("name", ALLOWED)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_pairing_is_enforced_naming_both(sampler, name):
    draft, verifier = SAMPLERS[sampler], verifiers.make(name)
    tokens = draft.sample(np.random.default_rng(0), 1)[0]
    if sampler in ALLOWED[name]:
        verifier.verify(P, draft, tokens, np.random.default_rng(0))
        return
    calls = (
        lambda: verifier.acceptance_rate(P, draft),
        lambda: verifier.kernel(P, draft, tokens),
        lambda: verifier.verify(P, draft, tokens, np.random.default_rng(0)),
        lambda: verifier.prepare(P, draft),
    )
    for call in calls:
        with pytest.raises(ValueError, match=rf"{name}.*{draft.name}"):
            call()


def test_one_draft_without_replacement_is_served_by_the_single_draft_rules():
    draft = drafts.WithoutReplacement(Q, 1)
    for name in ("single-draft", "rrs", "convex-minorant"):
        assert verifiers.make(name).acceptance_rate(P, draft) == pytest.approx(np.minimum(P, Q).sum(), abs=1e-14)


@pytest.mark.parametrize("name", verifiers.NAMES)
@pytest.mark.parametrize(
    ("tokens", "what"), [([0, 1, 6], "tokens"), ([-1, 0, 1], "tokens"), ([0.5, 1, 2], "tokens"), ([0, 1], "tokens")]
)
def test_bad_tokens_are_named(name, tokens, what):
    draft = next(d for d in SAMPLERS.values() if verifiers.make(name).refusal(d) is None)
    with pytest.raises(ValueError, match=what):
        verifiers.make(name).kernel(P, draft, tokens if draft.width == 3 else tokens * 2)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match=r"known are .*rrs"):
        verifiers.make("rss")
    with pytest.raises(ValueError, match=r"known are .*greedy"):
        drafts.make("greed", Q, n=2)


def test_zero_from_the_generator_does_not_emit_an_impossible_token():
    """u = 0 and p(token) = 0: rejected, for the comparison is strict."""

    class Zeros:
        def random(self, size=None):
            return 0.0 if size is None else np.zeros(size)

    p, q = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    for name, draft in (
        ("single-draft", drafts.WithReplacement(q, 1)),
        ("rrs", drafts.WithReplacement(q, 2)),
        ("kseq", drafts.WithReplacement(q, 2)),
        ("convex-minorant", drafts.WithReplacement(q, 2)),
        ("rrs", drafts.WithoutReplacement(q, 1)),
    ):
        tokens = np.ones(draft.width, dtype=int)
        assert verifiers.make(name).verify(p, draft, tokens, Zeros()) == 0


def test_greedy_and_spechub_share_the_rate_and_differ_in_law():
    """SpecHub's plan is its own: the order of the pair matters to it and not to greedy's rule."""
    p, draft = np.array([0.2, 0.5, 0.3]), drafts.SpecHub(np.array([0.5, 0.3, 0.2]))
    greedy, spechub = verifiers.make("greedy"), verifiers.make("spechub")
    assert spechub.acceptance_rate(p, draft) == pytest.approx(greedy.acceptance_rate(p, draft), abs=1e-15)
    np.testing.assert_array_equal(greedy.kernel(p, draft, [0, 1]), greedy.kernel(p, draft, [1, 0]))
    assert abs(spechub.kernel(p, draft, [0, 1]) - spechub.kernel(p, draft, [1, 0])).max() > 0.1


@given(st.integers(1, 64), st.floats(-290, 0))
@settings(max_examples=60, deadline=None)
def test_kseq_gamma_is_the_smallest_valid_one(n, exponent):
    from mdsd_theory.kernels import scaled_overlap
    from mdsd_theory.verifiers.kseq import smallest_gamma

    rng = np.random.default_rng(n)
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    q = q * (1 - 10.0**exponent)
    q[0] += 1 - q.sum()
    gamma = smallest_gamma(p, q, n)

    def excess(g):
        b = min(scaled_overlap(p, q, g) / g, 1.0)
        return 1 - (1 - b) ** n - g * b

    assert 1 <= gamma <= n
    assert excess(gamma) <= 1e-13
    if gamma > 1 + 1e-9:
        assert excess(gamma * (1 - 1e-6)) > 0
