"""A small pair (p, q), and the kit's verdict on what verifies its drafts."""

import numpy as np

from mdsd_theory import conformance, drafts

P, Q = np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1])


def verdict_of(verifier, n=2, p=P, **options):
    return conformance.check(verifier, p.copy(), drafts.WithReplacement(Q.copy(), n), resolution=0.1, **options)
