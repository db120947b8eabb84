"""The compiled loops against plain NumPy, at lengths where their strips and blocks begin and end."""

import numpy as np
import pytest

from mdsd_theory.kernels import BUCKETS, bucket_tokens, fill_buckets

LENGTHS = [1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", LENGTHS)
def test_buckets_are_the_sums_of_their_tokens(size, dtype):
    rng = np.random.default_rng(size)
    p, q = (rng.dirichlet(np.full(size, 0.3)).astype(dtype) for _ in range(2))
    for skipped in {0, min(1, size), min(3, size), size}:
        skip = np.sort(rng.choice(size, skipped, replace=False))
        ids, p_sums, q_sums = np.zeros(size, np.uint16), np.empty(BUCKETS + 1), np.empty(BUCKETS + 1)
        fill_buckets(p, q, 0.5, 2.0, skip, ids, p_sums, q_sums)

        scaled_p, scaled_q = p.astype(np.float64) * 0.5, q.astype(np.float64) * 2.0
        expected = (scaled_q / np.maximum(scaled_p + scaled_q, 5e-324) * BUCKETS).astype(np.uint16)
        expected[skip] = BUCKETS + 1
        np.testing.assert_array_equal(ids, expected)
        kept = np.delete(np.arange(size), skip)
        for sums, masses in ((p_sums, scaled_p), (q_sums, scaled_q)):
            counted = np.bincount(ids[kept], weights=masses[kept], minlength=BUCKETS + 1)
            np.testing.assert_allclose(sums, counted, rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("size", LENGTHS)
def test_tokens_of_a_bucket(size):
    ids = np.random.default_rng(size).integers(0, 4, size).astype(np.uint16)
    for bucket in range(5):
        np.testing.assert_array_equal(bucket_tokens(ids, bucket), np.flatnonzero(ids == bucket))
