"""Running the same function over many tasks: in this process, on this machine's cores (joblib), or on a Dask cluster.

The caller's numbers cannot depend on which: tasks carry everything that decides their result, and results come back
with the index of their task, in any order.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def run(
    function: Callable[[Any], Any], tasks: Sequence[Any], workers: int = 1, dask: str | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield (index, function(tasks[index])) as results arrive.

    workers: processes on this machine (1: this process). dask: address of a running scheduler, e.g. "tcp://host:8786";
    its workers need this package and the same paths; tasks of a worker that dies are run again elsewhere. ValueError
    for workers < 1, both at once, or no scheduler at the address; an error raised by the function is raised here.
    """
    if workers < 1:
        raise ValueError(f"workers is {workers}; it must be at least 1")
    if dask is not None and workers != 1:
        raise ValueError("give workers or dask, not both: the cluster has its own workers")
    if dask is not None:
        yield from _on_cluster(function, tasks, dask)
    elif workers == 1:
        for index, task in enumerate(tasks):
            yield index, function(task)
    else:
        from joblib import Parallel, delayed

        jobs = (delayed(_indexed)(function, index, task) for index, task in enumerate(tasks))
        yield from Parallel(n_jobs=workers, backend="loky", return_as="generator_unordered")(jobs)


def _indexed(function: Callable[[Any], Any], index: int, task: object) -> tuple[int, Any]:
    return index, function(task)


def _on_cluster(function: Callable[[Any], Any], tasks: Sequence[Any], address: str) -> Iterator[tuple[int, Any]]:
    from distributed import Client, as_completed

    try:
        client = Client(address, timeout="5s", set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        futures = client.map(_indexed, [function] * len(tasks), range(len(tasks)), tasks, pure=False)
        waiting = as_completed(futures, loop=client.loop, with_results=True)
        del futures  # so that the cluster forgets a result once it was taken
        for _, result in waiting:
            yield result
