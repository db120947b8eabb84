"""Multi-draft speculative decoding: optimal acceptance rates and lossless verifiers.

The inner loops are compiled by Numba on first use and cached on disk: the first call after an installation takes some
    seconds.
"""

from mdsd_theory import conformance, drafts, transport, verifiers
from mdsd_theory.acceptance import Certificate, OptimalAcceptance, certificate, optimal_acceptance
from mdsd_theory.batch import BatchAcceptance, optimal_acceptance_batch
from mdsd_theory.distributions import probabilities
from mdsd_theory.qconvexity import QConvexity, is_q_convex

__all__ = [
    "BatchAcceptance",
    "Certificate",
    "OptimalAcceptance",
    "QConvexity",
    "certificate",
    "conformance",
    "drafts",
    "is_q_convex",
    "optimal_acceptance",
    "optimal_acceptance_batch",
    "probabilities",
    "transport",
    "verifiers",
]
