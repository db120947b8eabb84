"""What the tests of the conformance kit share."""

import pytest

from mdsd_theory import conformance


@pytest.fixture
def quick(monkeypatch):
    """Leaves out the one case that takes most of the calls, and which only 16-bit rounding needs."""
    monkeypatch.setattr("mdsd_theory.conformance.report.CASES", [case for case in conformance.CASES if not case.paired])
