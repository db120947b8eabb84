"""What the conformance kit cannot judge is bad input: a ValueError that names it, not a verdict."""

import re

import numpy as np
import pytest

from mdsd_theory import conformance, drafts, verifiers
from tests.theory.reference_pair import P, Q
from tests.theory.user_verifiers import rrs


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
