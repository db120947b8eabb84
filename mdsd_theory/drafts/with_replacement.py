"""n i.i.d. draft tokens: the end top = 0 of the top-then-sample family."""

from __future__ import annotations

from numpy.typing import ArrayLike

from mdsd_theory.drafts.top_then_sample import TopThenSample


class WithReplacement(TopThenSample):
    """x_1..x_n i.i.d. ~ q, so Q(H) = q(H)^n ([2] Sun et al. 2023; [4] Miao et al. 2023; [1], section 4)."""

    name = "with-replacement"

    def __init__(self, q: ArrayLike, n: int) -> None:
        super().__init__(q, n, 0)
