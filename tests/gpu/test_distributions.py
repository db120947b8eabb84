import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import mdsd_theory
from gpu.distributions import Sampling, categorical, top_tokens


@example(logits=[-3.0, -1.5], temperature=1e300, top_k=1, top_p=None)  # the quotients are equal, the logits are not
@example(logits=[-3.0, -1.5, -3.0], temperature=1e300, top_k=None, top_p=0.5)
@example(logits=[0.5] * 12, temperature=0.3, top_k=None, top_p=0.75)  # nine of twelve reach it exactly
@given(
    logits=st.lists(st.sampled_from([-np.inf, -3.0, -1.5, 0.0, 0.5, 0.5, 2.0, 4.0]), min_size=1, max_size=12),
    temperature=st.sampled_from([0.0, 5e-324, 1e-300, 0.3, 1.0, 2.0, 1e300]),
    top_k=st.none() | st.integers(1, 14),
    top_p=st.none() | st.floats(0.05, 1.0),
)
def test_probabilities_are_those_of_the_theory(logits, temperature, top_k, top_p):
    logits = np.array(logits)
    sampling = Sampling(temperature, top_k, top_p)
    ours = sampling(torch.from_numpy(np.stack([logits, logits[::-1].copy()])))
    if logits.max() == -np.inf:
        assert ours.isnan().all()
        return
    for mine, row in zip(ours, (logits, logits[::-1]), strict=True):
        theirs = mdsd_theory.probabilities(row, temperature, top_k, top_p)
        assert np.abs(mine.numpy() - theirs).max() < 1e-12


@pytest.mark.parametrize("logits", [[float("nan"), 0.0], [float("inf"), 0.0], [-float("inf")] * 2])
@pytest.mark.parametrize("temperature", [0.0, 1e-45, 0.5, 1.0])
def test_broken_logits_give_nan(logits, temperature):
    assert Sampling(temperature)(torch.tensor([logits])).isnan().any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_normalised_in_float32(dtype):
    p = Sampling()(torch.randn(3, 50_000, generator=torch.Generator().manual_seed(0)).to(dtype))
    assert p.dtype == torch.float32
    assert (p.double().sum(-1) - 1).abs().max() < 1e-5


def test_softmax_forgets_no_temperature():
    assert Sampling(0.5)(torch.tensor([2.0, 1.0, 0.0])).numpy() == pytest.approx([0.8668, 0.1173, 0.0159], abs=5e-5)


@pytest.mark.parametrize("temperature", [1e-45, 1e-38, 1e-30])
def test_the_smallest_temperatures_take_the_largest_logits(temperature):
    assert Sampling(temperature)(torch.tensor([2.0, -torch.inf, 3.0, 3.0])).tolist() == [0, 0, 0.5, 0.5]


@pytest.mark.parametrize(
    "bad", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}]
)
def test_values_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Sampling(**bad)


def test_categorical_inverts_the_cumulative_sum():
    weights = torch.tensor([[0.0, 2.0, 0.0, 1.0, 1.0, 0.0]])
    u = torch.tensor([0.0, 0.25, 0.4999, 0.5, 0.75, 1 - 2**-53], dtype=torch.float64)
    assert categorical(weights.expand(6, -1), u).tolist() == [1, 1, 1, 3, 4, 4]


def test_categorical_draws_rare_tokens_of_a_large_vocabulary_at_their_rate():
    p = torch.full((1, 200_000), 1e-9)
    p[0, 0] = 1 - 1e-9 * 199_999
    rare = categorical(p, torch.tensor([1 - 1e-4], dtype=torch.float64))  # float32 sums would be stuck far from here
    assert rare.item() == pytest.approx(100_000, abs=200)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=10), st.integers(0, 10))
def test_top_tokens_break_ties_by_lowest_id(values, k):
    k = min(k, len(values))
    expected = sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]
    assert top_tokens(torch.tensor([values], dtype=torch.float64), k)[0].tolist() == expected
