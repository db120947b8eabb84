"""Our verifiers pass the conformance kit with every sampler they serve, as objects and as functions."""

import pytest

from mdsd_theory import conformance, drafts, verifiers

# The resolution of `-m slow`; by default these are coarser, to be quick.
FINE = 0.08


def compatible():
    """Every registered verifier with every sampler it serves, as (verifier, sampler, n of the function's drafts)."""
    for name in verifiers.NAMES:
        for sampler in drafts.NAMES:
            served = [
                draft
                for _, draft in conformance.drafts_for(sampler, conformance.CASES[0], (1, 2, 3))
                if verifiers.make(name).refusal(draft) is None
            ]
            if served:
                yield pytest.param(name, served[-1], id=f"{name}-{sampler}")


COMPATIBLE = list(compatible())


def as_function(verifier, name, parameters):
    """One of ours as a user's function, that keeps what all draws at one position share."""
    held = {}

    def function(p, q, tokens, rng):
        key = (p.tobytes(), q.tobytes())
        if key not in held:
            draft = drafts.make(name, q, **parameters)
            held[key] = draft, verifier.prepare(p, draft)
        draft, state = held[key]
        return verifier.verify(p, draft, tokens, rng, state=state)

    return function


def passes_as_function(name, draft, resolution):
    fixed = draft.name in ("spechub", "independent", "joint")
    parameters = {} if fixed else {"n": draft.n}
    sampler = draft.name
    if sampler == "top-then-sample":
        parameters["top"] = draft.top
        sampler += f":{draft.top}"
    function = as_function(verifiers.make(name), draft.name, parameters)
    report = conformance.suite(function, sampler, n=(draft.n,), resolution=resolution)
    assert report.lossless, str(report)
    assert len(report.runs) >= len(conformance.CASES) - 1
    assert not any(run.verdict.exact for run in report.runs)


def test_every_verifier_and_every_sampler_is_among_the_compatible():
    assert {param.values[0] for param in COMPATIBLE} == set(verifiers.NAMES)
    assert {param.values[1].name for param in COMPATIBLE} == set(drafts.NAMES)


@pytest.mark.parametrize(("name", "draft"), COMPATIBLE)
def test_our_verifiers_pass_as_objects_exactly(name, draft):
    report = conformance.suite(verifiers.make(name), draft.name, resolution=0.6)
    assert report.lossless, str(report)
    assert all(run.verdict.exact and run.verdict.calls > 0 for run in report.runs)
    for run in report.runs:
        assert run.verdict.acceptance <= run.verdict.optimal + 1e-12


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("name", "draft"), COMPATIBLE)
def test_our_verifiers_pass_as_functions_counted(name, draft):
    passes_as_function(name, draft, 0.6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "draft"), {param.values[0]: param for param in COMPATIBLE}.values())
def test_our_verifiers_pass_at_a_finer_resolution(name, draft):
    report = conformance.suite(verifiers.make(name), draft.name, resolution=FINE)
    assert report.lossless, str(report)
    passes_as_function(name, draft, FINE)
