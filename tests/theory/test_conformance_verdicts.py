"""The conformance kit's verdict on one verifier and pair: by enumerating its kernel, or by counting its tokens."""

import sys

import numpy as np
import pytest

from mdsd_theory import conformance, drafts, verifiers
from tests.theory.reference_pair import P, Q, verdict_of
from tests.theory.user_verifiers import (
    always_the_first_draft,
    draw,
    forgets_the_last_residual,
    never_tries_the_last_draft,
    rrs,
)


class Object:
    """Our recursive rejection, to be spoilt."""

    def kernel(self, p, draft, tokens):
        return verifiers.make("rrs").kernel(p, draft, tokens)

    def verify(self, p, draft, tokens, rng):
        return verifiers.make("rrs").verify(p, draft, tokens, rng)


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
