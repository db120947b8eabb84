import json

import numpy as np
import pytest

from gpu.records import Record, Visit
from gpu.summaries import ratio, summarise


def record(*passes):
    """A record with these passes: per pass (rank, drafts, bound) by depth."""
    visits = [
        Visit(step, depth, drafts, rank, 0.5, bound)
        for step, nodes in enumerate(passes)
        for depth, (rank, drafts, bound) in enumerate(nodes)
    ]
    made = Record([1], list(range(len(visits))), visits, target_passes=len(passes), draft_passes=2 * len(passes))
    made.seconds.update(draft=1.0, target=2.0, verify=0.5, bookkeeping=0.5)
    return made


def test_sums_by_hand():
    records = [
        record([(0, 2, 0.9), (1, 2, 0.8), (-1, 0, None)], [(-1, 2, 0.7)]),
        record([(1, 2, 0.6), (-1, 2, 0.5)]),
    ]
    s = summarise(records)
    assert (s.texts, s.tokens, s.target_passes, s.draft_passes) == (2, 6, 3, 6)
    assert s.acceptance.value == pytest.approx(3 / 5)
    assert s.bound == pytest.approx(0.7)
    assert s.gap.value == pytest.approx(0.1)
    assert s.block_efficiency.value == 2
    assert [e.value for e in s.by_depth] == pytest.approx([2 / 3, 1 / 2])
    assert [e.value for e in s.by_rank] == pytest.approx([1 / 5, 2 / 5])
    assert s.tokens_per_second == pytest.approx(6 / 8)
    assert json.loads(json.dumps(s.as_dict()))["acceptance"]["value"] == pytest.approx(0.6)


def test_nothing_drafted_is_nan_and_no_warning():
    s = summarise([record([(-1, 0, None)], [(-1, 0, None)])])
    assert np.isnan(s.acceptance.value)
    assert json.loads(json.dumps(s.as_dict(), allow_nan=False))["acceptance"]["value"] is None
    assert np.isnan(s.bound)
    assert s.block_efficiency.value == 1


def test_the_interval_covers_a_ratio_of_dependent_visits():
    """Chains of depth 4 with acceptance .7 a node: 95 % of 4000 intervals from 60 passes each cover .7."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(4000):
        accepted = np.minimum(rng.geometric(0.3, 60) - 1, 4)
        estimate = ratio(zip(accepted, np.minimum(accepted + 1, 4), strict=True))
        covered += estimate.low <= 0.7 <= estimate.high
    # standard error .0034; the normal approximation at 60 passes costs up to a point
    assert 0.925 < covered / 4000 < 0.97
