"""Verifiers as a user would write them: recursive rejection done right, and each way that we know to do it wrong."""

import numpy as np


def normalised(mass, otherwise):
    total = mass.sum()
    return mass / total if total > 0 else otherwise


def draw(law, rng):
    """A token of positive mass: rng.choice, only faster."""
    return int((np.cumsum(law) <= rng.random() * law.sum()).sum())


def rrs(p, q, tokens, rng, *, without=False):
    """Recursive rejection as a user would write it, with or without replacement."""
    r, q = p, q.copy()
    for x in tokens:
        step = normalised(q, q)
        if rng.random() * step[x] < r[x]:
            return x
        r = normalised(np.maximum(r - step, 0), p)
        if without:
            q[x] = 0
    return draw(r, rng)


def rrs_without(p, q, tokens, rng):
    return rrs(p, q, tokens, rng, without=True)


# Wrong, one kind each.


def residual_not_renormalised(p, q, tokens, rng):
    r = p
    for x in tokens:
        if rng.random() * q[x] < r[x]:
            return x
        r = np.maximum(r - q, 0)
    return draw(normalised(r, p), rng)


def accepts_duplicates_twice(p, q, tokens, rng):
    """A repeated draft gets another chance against the p that has already been spent on it."""
    r, tried = p, set()
    for x in tokens:
        if rng.random() * q[x] < (p if x in tried else r)[x]:
            return x
        if x not in tried:
            r = normalised(np.maximum(r - q, 0), p)
        tried.add(x)
    return draw(r, rng)


def skips_duplicates(p, q, tokens, rng):
    """A repeated draft is not tried again, as if that cost nothing."""
    return rrs(p, q, np.unique(tokens), rng)


def wrong_order_of_subtraction(p, q, tokens, rng):
    r = p
    for x in tokens:
        if rng.random() * q[x] < r[x]:
            return x
        r = normalised(np.maximum(q - r, 0), p)
    return draw(r, rng)


def forgets_the_last_residual(p, q, tokens, rng):
    r = p
    for k, x in enumerate(tokens):
        if rng.random() * q[x] < r[x]:
            return x
        if k + 1 < len(tokens):
            r = normalised(np.maximum(r - q, 0), p)
    return draw(r, rng)


def samples_p_after_rejection(p, q, tokens, rng):
    token = rrs(p, q, tokens, rng)
    return token if token in tokens else draw(p, rng)


def float16_q(p, q, tokens, rng):
    return rrs(p, q.astype(np.float16).astype(np.float64), tokens, rng)


def float16_p(p, q, tokens, rng):
    return rrs(p.astype(np.float16).astype(np.float64), q, tokens, rng)


def float16_q_without(p, q, tokens, rng):
    return rrs(p, q.astype(np.float16).astype(np.float64), tokens, rng, without=True)


def next_draft_in_rank(p, q, tokens, rng):
    """Tests each draft, but hands back the one after it."""
    r = p
    for k, x in enumerate(tokens):
        if rng.random() * q[x] < r[x]:
            return tokens[(k + 1) % len(tokens)]
        r = normalised(np.maximum(r - q, 0), p)
    return draw(r, rng)


def never_tries_the_last_draft(p, q, tokens, rng):
    """The last draft is rejected unseen, yet its share of the residual is taken off."""
    r = p
    for k, x in enumerate(tokens):
        if k + 1 < len(tokens) and rng.random() * q[x] < r[x]:
            return x
        r = normalised(np.maximum(r - q, 0), p)
    return draw(r, rng)


def removes_the_wrong_rank(p, q, tokens, rng):
    """Without replacement, the draft taken out of q is one behind."""
    r, q = p, q.copy()
    for k, x in enumerate(tokens):
        step = normalised(q, q)
        if rng.random() * step[x] < r[x]:
            return x
        r = normalised(np.maximum(r - step, 0), p)
        if k > 0:
            q[tokens[k - 1]] = 0
    return draw(r, rng)


def after_top_p(mass):
    """The drafts were drawn from q; the ratio uses q after top-p."""

    def verifier(p, q, tokens, rng):
        order = np.argsort(-q, kind="stable")
        kept = order[: np.searchsorted(np.cumsum(q[order]), mass - 1e-12) + 1]
        nucleus = np.zeros_like(q)
        nucleus[kept] = q[kept]
        return rrs(p, nucleus / nucleus.sum(), tokens, rng)

    verifier.__name__ = f"after_top_p_{mass}"
    return verifier


def always_the_first_draft(p, q, tokens, rng):
    return tokens[0]


# Each with the sampler whose drafts it is wrong for.
PLANTED = [
    (residual_not_renormalised, "with-replacement"),
    (accepts_duplicates_twice, "with-replacement"),
    (skips_duplicates, "with-replacement"),
    (rrs, "without-replacement"),
    (rrs_without, "with-replacement"),
    (wrong_order_of_subtraction, "with-replacement"),
    (forgets_the_last_residual, "with-replacement"),
    (samples_p_after_rejection, "with-replacement"),
    (next_draft_in_rank, "with-replacement"),
    (never_tries_the_last_draft, "with-replacement"),
    (removes_the_wrong_rank, "without-replacement"),
    *((after_top_p(mass), "with-replacement") for mass in (0.8, 0.9, 0.95, 0.99)),
    (always_the_first_draft, "with-replacement"),
    (float16_q_without, "without-replacement"),
]
