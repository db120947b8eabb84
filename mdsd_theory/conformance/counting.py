"""What counts tell: exact binomial tests, and how many calls they need.

Pearson's chi-square is only asymptotic, and far from its limit at levels like 1e-12 where cells are rare. Every cell of
a multinomial count is exactly binomial, so one exact test per cell with the level divided over the cells has the
false-alarm probability it claims at any sample size, and says which cell is wrong.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

# The worst tokens for power are those of mass near 1/2: more need not be looked at.
_WORST = 16


def surprise(counts: ArrayLike, calls: int, mass: ArrayLike) -> NDArray[np.float64]:
    """Two-sided exact p-values of counts under Binomial(calls, mass): twice the smaller tail, at most 1.

    Where `mass` is 0 (or 1) it is 0 as soon as one call differs.
    """
    from scipy.stats import binom  # as slow to import as all the rest together

    counts, mass = np.asarray(counts), np.clip(mass, 0.0, 1.0)
    lower = binom.cdf(counts, calls, mass)
    upper = binom.sf(counts - 1, calls, mass)
    return np.minimum(1.0, 2.0 * np.minimum(lower, upper))


def excess_surprise(count: int, calls: int, mass: float) -> float:
    """One-sided exact p-value of so large a count where each call succeeds with probability at most `mass`."""
    from scipy.stats import binom

    return float(binom.sf(count - 1, calls, min(max(mass, 0.0), 1.0)))


def difference_surprise(gained: ArrayLike, lost: ArrayLike) -> NDArray[np.float64]:
    """McNemar's exact test: two-sided p-values of `gained` against `lost` calls when either is as likely.

    Of paired events A and B of equal probability, calls with A alone are as likely as calls with B alone.
    """
    gained, lost = np.asarray(gained), np.asarray(lost)
    return surprise(gained, gained + lost, 0.5)


def sample_size(p: NDArray[np.float64], resolution: float, level: float, power: float) -> int:
    """The number of calls at which an error of `resolution` in any token's mass is found with probability `power`.

    Found means that the two-sided exact test at `level` rejects. Errors that p(token) leaves no room for are left out;
    for p(token) in {0, 1} a single call that differs is enough. Exact to 5 % of the number returned.
    """
    worst = np.unique(p[np.argsort(np.abs(p - 0.5), kind="stable")[:_WORST]])
    return max(_calls_for(float(mass), resolution, level, power) for mass in worst)


def paired_sample_size(resolution: float, level: float, power: float) -> int:
    """The number of calls at which `difference_surprise` finds an error of `resolution` with probability `power`, where
    all calls that differ do so in one direction.
    """
    from scipy.stats import binom

    needed = int(np.ceil(np.log2(2.0 / level)))
    calls = int(needed / resolution)
    while binom.sf(needed - 1, calls, resolution) < power:
        calls += calls // 20 + 1
    return calls


@lru_cache(maxsize=4096)
def _calls_for(mass: float, resolution: float, level: float, power: float) -> int:
    from scipy.stats import binom, norm

    wrong = [other for other in (mass - resolution, mass + resolution) if 0.0 <= other <= 1.0]
    if mass in (0.0, 1.0) or not wrong:
        return int(np.ceil(np.log1p(-power) / np.log1p(-resolution)))

    def found(calls: int) -> float:
        least = np.inf
        for other in wrong:
            if other < mass:
                # ppf is the smallest k with cdf(k) > level / 2; below it the test rejects.
                least = min(least, binom.cdf(binom.ppf(level / 2, calls, mass) - 1, calls, other))
            else:
                least = min(least, binom.sf(binom.isf(level / 2, calls, mass), calls, other))
        return least

    quantiles = norm.isf(level / 2), norm.isf(1 - power)
    deviations = np.sqrt(mass * (1 - mass)), max(np.sqrt(other * (1 - other)) for other in wrong)
    calls = int(np.ceil(((quantiles[0] * deviations[0] + quantiles[1] * deviations[1]) / resolution) ** 2))
    while found(calls) < power:
        calls += calls // 20 + 1
    return calls
