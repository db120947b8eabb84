"""The same results from this process, from processes of this machine and from a Dask cluster."""

import math
import operator

import pytest

from simulation.execution import run


@pytest.fixture(scope="module")
def cluster():
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=40
    ) as local:
        yield local.scheduler_address


@pytest.mark.parametrize("where", ["here", "processes", "dask"])
def test_every_task_comes_back_once_with_its_index(where, request):
    options = {"here": {}, "processes": {"workers": 2}, "dask": {}}[where]
    if where == "dask":
        options = {"dask": request.getfixturevalue("cluster")}
    tasks = list(range(40))
    found = list(run(math.sqrt, tasks, **options))
    assert sorted(found) == [(k, math.sqrt(k)) for k in tasks]


@pytest.mark.parametrize("where", ["here", "processes", "dask"])
def test_an_error_in_a_task_is_raised_here(where, request):
    options = {"here": {}, "processes": {"workers": 2}, "dask": {}}[where]
    if where == "dask":
        options = {"dask": request.getfixturevalue("cluster")}
    with pytest.raises(TypeError):
        list(run(operator.neg, [1, "two", 3], **options))


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="workers is 0"):
        list(run(math.sqrt, [1], workers=0))
    with pytest.raises(ValueError, match="workers or dask, not both"):
        list(run(math.sqrt, [1], workers=2, dask="tcp://127.0.0.1:1"))


def test_a_missing_scheduler_is_named():
    with pytest.raises(ValueError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        list(run(math.sqrt, [1], dask="tcp://127.0.0.1:9"))
