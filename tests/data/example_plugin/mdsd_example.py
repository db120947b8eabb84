"""A verifier and a sampler for mdsd, as another package would write them."""

import numpy as np

from mdsd_theory.drafts import Draft
from mdsd_theory.verifiers import Law, Verifier


class FirstDraft(Verifier):
    """Single-draft verification of the first draft; the others are not read."""

    name = "example-first-draft"

    def refusal(self, draft):
        if draft.name in ("with-replacement", "without-replacement", "independent", "example-copies"):
            return None
        return "the first draft has to be a sample of q"

    def _prepare(self, p, draft):
        residual = np.maximum(p - draft.q, 0)
        return p, draft.q, residual / residual.sum() if residual.sum() > 0 else p

    def _law(self, state, tokens):
        p, q, residual = state
        accepted = np.zeros(tokens.size)
        accepted[0] = min(1.0, p[tokens[0]] / q[tokens[0]])
        return Law(accepted, 1 - accepted[0], residual)


class ForgetsTheResidual:
    """Not lossless: after a rejection it samples p. An object that emits and does not tell its law."""

    def verify(self, p, draft, tokens, rng):
        x = tokens[0]
        return x if rng.random() * draft.q[x] < p[x] else rng.choice(p.size, p=p)


class Copies(Draft):
    """n copies of one draw from q, so Q(H) = q(H)."""

    name = "example-copies"
    q_convex = True

    def __init__(self, q, n):
        self._read(q, n)

    def sample(self, rng, size):
        return np.repeat(rng.choice(self.vocab_size, size=(size, 1), p=self.q), self.n, axis=1)

    def subset_mass(self, subset):
        return min(float(self.q[self._mask(subset)].sum()), 1.0)

    def prefix_masses(self, order):
        return np.minimum(np.concatenate([[0.0], np.cumsum(self.q[np.asarray(order, dtype=int)])]), 1.0)

    def joint(self):
        support = np.flatnonzero(self.q > 0)
        return np.repeat(support[:, None], self.n, axis=1), self.q[support]
