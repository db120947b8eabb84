"""Speculative sampling with one draft."""

from __future__ import annotations

from mdsd_theory.drafts.base import Draft
from mdsd_theory.drafts.independent import Independent
from mdsd_theory.drafts.without_replacement import WithoutReplacement
from mdsd_theory.verifiers.base import is_iid
from mdsd_theory.verifiers.recursive_rejection import RecursiveRejection


class SingleDraft(RecursiveRejection):
    """Accept x with probability min(1, p(x)/q(x)), else sample (p - q)_+ normalised: one step of RRS.

    Acceptance rate: sum min(p, q) = 1 - TV(p, q), which is alpha* for n = 1 ([3] Leviathan et al. 2023, Chen et al.
        2023).
    """

    name = "single-draft"

    def refusal(self, draft: Draft) -> str | None:
        sampled = is_iid(draft) or isinstance(draft, (WithoutReplacement, Independent))
        return None if sampled and draft.n == 1 else "it verifies exactly one token that was sampled from q"
