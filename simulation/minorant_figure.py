"""The picture of the convex-minorant verifier: `python -m simulation.minorant_figure FILE.png`."""

import sys
from pathlib import Path

import numpy as np

from mdsd_theory import drafts, verifiers
from simulation.plots import COLOURS, FIXED_METADATA, STYLE, plt

P = np.array([0.02, 0.05, 0.06, 0.10, 0.14, 0.18, 0.20, 0.25])
Q = np.array([0.16, 0.20, 0.14, 0.14, 0.12, 0.10, 0.08, 0.06])
DRAFTS = 3
SHOWN = (0.15, 0.5, 0.85)


def minorant_figure() -> plt.Figure:
    """T above X^m on the left; T - s X^m and its lower convex envelope for three s on the right."""
    draft = drafts.WithReplacement(Q, DRAFTS)
    ordered = verifiers.make("convex-minorant").prepare(P, draft).ordered
    order = np.argsort(ordered.place)
    x, total = (np.concatenate([[0.0], np.cumsum(mass[order])]) for mass in (Q, ordered.t))
    target = np.concatenate([[0.0], np.cumsum(P[order])])
    fine = np.linspace(0, 1, 400)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot(x, target, ":", color=COLOURS[6], marker=".", label="P, prefix sums of p'")
    left.plot(x, total, "-", color=COLOURS[0], marker="o", label="T, prefix sums of t")
    left.plot(fine, fine**DRAFTS, "--", color=COLOURS[1], label=f"x^{DRAFTS}")
    left.set(xlabel="X, prefix sums of q'", title="the clipped target stays above x^m")
    left.legend()
    for s, colour, marker in zip(SHOWN, COLOURS, "os^", strict=False):
        # A boundary is a vertex of the envelope until its death time; both ends always are.
        vertex = np.concatenate([[True], ordered.deaths > s, [True]])
        curve = np.interp(fine, x, total) - s * fine**DRAFTS
        right.plot(fine, curve, "-", color=colour, alpha=0.35)
        right.plot(x, total - s * x**DRAFTS, marker, color=colour, markersize=3)
        right.plot(x[vertex], (total - s * x**DRAFTS)[vertex], "-", color=colour, marker=marker, label=f"s = {s}")
    right.set(xlabel="X", title="T - s x^m and its convex minorant")
    right.legend()
    return figure


if __name__ == "__main__":
    with plt.rc_context(STYLE):
        minorant_figure().savefig(Path(sys.argv[1]), dpi=110, metadata=FIXED_METADATA["png"])
