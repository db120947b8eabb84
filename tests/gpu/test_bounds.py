import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.bounds import optimal_acceptance
from mdsd_theory import drafts
from mdsd_theory import optimal_acceptance as exact
from tests.gpu.strategies import pair


@settings(max_examples=100, deadline=None)
@given(pq=pair(), n=st.integers(1, 5), top=st.integers(0, 5))
def test_equals_the_theory(pq, n, top):
    p, q = pq
    top = min(top, n)
    expected = exact(p, drafts.TopThenSample(q, n, top=top)).rate
    rows = (torch.from_numpy(np.stack([x, x])) for x in (p, q))
    assert optimal_acceptance(*rows, n, top).numpy() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("n", "top"), [(1, 0), (4, 0), (4, 1), (4, 3), (4, 4)])
def test_equals_the_theory_at_a_real_vocabulary_in_float32(n, top):
    rng = np.random.default_rng(n + top)
    logits = rng.normal(size=(2, 3, 49_152)) * 3
    p, q = torch.from_numpy(logits).float().softmax(-1).unbind(0)
    wide = [x.double().numpy() for x in (p, q)]
    for row, rate in enumerate(optimal_acceptance(p, q, n, top)):
        a, b = (x[row] / x[row].sum() for x in wide)
        assert rate == pytest.approx(exact(a, drafts.TopThenSample(b, n, top=top)).rate, abs=1e-6)


def test_top_out_of_range_is_refused():
    with pytest.raises(ValueError, match="top must be from 0 to n"):
        optimal_acceptance(torch.ones(1, 1), torch.ones(1, 1), 1, 2)
