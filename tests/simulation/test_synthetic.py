"""Synthetic pairs have the entropy and the distance that were asked for, whoever makes the row."""

import numpy as np
import pytest
from scipy.special import softmax

from simulation.synthetic import Synthetic, parse


def entropy(p):
    return -(p[p > 0] * np.log(p[p > 0])).sum()


@pytest.mark.parametrize("V", [2, 50, 49152])
@pytest.mark.parametrize("family", ["zipf", "dirichlet"])
def test_distance_at_temperature_one_is_the_one_asked_for(family, V):
    source = Synthetic(family, V=V, entropy=0.5 * np.log(V), distance=0.27, positions=4)
    for row in range(4):
        p, q = map(softmax, source.logits(row))
        assert p.shape == q.shape == (V,)
        assert abs(0.5 * np.abs(p - q).sum() - 0.27) < 1e-9


def test_zipf_has_its_entropy_in_every_row_in_another_order():
    source = Synthetic("zipf", V=3000, entropy=3.3)
    first, second = (softmax(source.logits(row)[0]) for row in (0, 1))
    assert abs(entropy(first) - 3.3) < 1e-9
    assert np.allclose(np.sort(first), np.sort(second), rtol=1e-12)
    assert not np.array_equal(first, second)


def test_dirichlet_has_its_entropy_in_the_mean():
    # The mean of 400 rows against its standard error: |z| > 6.1 has probability 1e-9.
    source = Synthetic("dirichlet", V=500, entropy=1.5, distance=0, positions=400)
    found = np.array([entropy(softmax(source.logits(row)[0])) for row in range(400)])
    z = (found.mean() - 1.5) / (found.std(ddof=1) / 20)
    assert abs(z) < 6.1
    wrong = (found.mean() - 1.0) / (found.std(ddof=1) / 20)
    assert abs(wrong) > 6.1


def test_dirichlet_survives_concentrations_whose_gamma_variates_underflow():
    source = Synthetic("dirichlet", V=100_000, entropy=0.05, distance=0.1, positions=3)
    for row in range(3):
        assert np.isfinite(source.logits(row)[0]).all()


def test_rows_depend_on_seed_and_number_alone():
    one, other = Synthetic("zipf", seed=3), Synthetic("zipf", seed=4)
    assert np.array_equal(one.logits(5)[1], Synthetic("zipf", seed=3, positions=6).logits(5)[1])
    assert not np.array_equal(one.logits(5)[1], other.logits(5)[1])
    assert one.fingerprint != other.fingerprint


def test_distance_zero_is_the_same_distribution():
    target, draft = Synthetic("zipf", distance=0).logits(0)
    assert np.array_equal(target, draft)


def test_parse_reads_every_parameter():
    found = parse("synthetic:dirichlet,V=4096,entropy=3,distance=0.2,positions=256,seed=7")
    assert found == Synthetic("dirichlet", V=4096, entropy=3.0, distance=0.2, positions=256, seed=7)
    assert len(found) == 256
    assert found.column("prompt").tolist() == list(range(256))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("synthetic:gauss", r"family is 'gauss'; known are zipf, dirichlet"),
        ("synthetic:zipf,size=3", r"parameter 'size'; known are V, entropy"),
        ("synthetic:zipf,V=many", r"V is 'many', not int"),
        ("synthetic:zipf,V=1", r"V is 1"),
        ("synthetic:zipf,V=8,entropy=2.2", r"entropy is 2.2; at V = 8 it must be inside \(0, 2.0794\)"),
        ("synthetic:zipf,entropy=nan", r"entropy is nan"),
        ("synthetic:zipf,distance=1", r"distance is 1.0"),
        ("synthetic:zipf,positions=0", r"positions is 0"),
        ("synthetic:zipf,seed=-1", r"seed is -1"),
    ],
)
def test_wrong_parameters_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)
