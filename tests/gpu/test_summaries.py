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


def test_children_of_a_tree_by_hand():
    """The root has three children, with two, one and no child of their own; each of the seven ways down once."""
    root = [(rank, 3, None) for rank in (-1, 0, 0, 0, 1, 1, 2)]
    below = [(), (-1, 2, None), (0, 2, None), (1, 2, None), (-1, 1, None), (0, 1, None), (-1, 0, None)]
    s = summarise([record(*([top, *([node] if node else [])] for top, node in zip(root, below, strict=True)))])
    assert s.children == ([[7, 7, 7], [5, 3, 0]], [[3, 2, 1], [2, 1, 0]])
    assert [e.value for e in s.by_depth] == [6 / 7, 3 / 5]
    assert [e.value for e in s.by_rank] == [5 / 12, 3 / 10, 1 / 7]
    assert s.acceptance.value == 9 / 12
    assert s.as_dict()["children"] == {"offered": s.children.offered, "accepted": s.children.accepted}


def test_marginals_are_what_is_counted_directly():
    """Estimates and intervals by depth and by rank, against the visits themselves, pass by pass."""
    rng = np.random.default_rng(1)
    records = []
    for _ in range(5):
        passes = []
        for _ in range(8):
            nodes = []
            for depth in range(4):
                drafts = int(rng.integers(0, 4)) if depth < 3 else 0
                rank = int(rng.integers(-1, drafts))
                nodes.append((rank, drafts, None))
                if rank < 0:
                    break
            passes.append(nodes)
        records.append(record(*passes))
    s = summarise(records)
    visits = [[v for v in r.visits if v.step == step] for r in records for step in range(8)]
    for depth, estimate in enumerate(s.by_depth):
        at = [[v for v in vs if v.depth == depth and v.drafts] for vs in visits]
        assert estimate == ratio((sum(v.rank >= 0 for v in vs), len(vs)) for vs in at)
        assert estimate.value == sum(s.children.accepted[depth]) / s.children.offered[depth][0]
    for rank, estimate in enumerate(s.by_rank):
        at = [[v for v in vs if v.drafts > rank] for vs in visits]
        assert estimate == ratio((sum(v.rank == rank for v in vs), len(vs)) for vs in at)
        hits, tries = (sum(row[rank] for row in counts) for counts in (s.children.accepted, s.children.offered))
        assert estimate.value == hits / tries
    assert (len(s.by_depth), len(s.by_rank)) == (3, 3)
    drafted = [[v for v in vs if v.drafts] for vs in visits]
    assert s.acceptance == ratio((sum(v.rank >= 0 for v in vs), len(vs)) for vs in drafted)


def test_nothing_drafted_is_nan_and_no_warning():
    s = summarise([record([(-1, 0, None)], [(-1, 0, None)])])
    assert np.isnan(s.acceptance.value)
    assert json.loads(json.dumps(s.as_dict(), allow_nan=False))["acceptance"]["value"] is None
    assert np.isnan(s.bound)
    assert (s.children, s.by_depth, s.by_rank) == (([], []), [], [])
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
