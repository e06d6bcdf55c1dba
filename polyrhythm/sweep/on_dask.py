# SPDX-License-Identifier: Apache-2.0
"""Measure points on a Dask cluster: a local one that is made for the purpose, or one that runs already."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from polyrhythm.paper.resumable import Row, mark
from polyrhythm.simulated_workload import SimulatedWorkload
from polyrhythm.sweep.point import SOURCES, Point, measure

CONNECT_S = 10
"""How long a cluster that runs already may take to answer. Chosen."""
IDLE_S = 10.0
"""A cluster without a worker is reported after this time. Chosen: a worker takes a few seconds to start."""
_ADDRESS = re.compile(r"(?:tcp|tls)://(?:[^\s:/]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_LAST_PORT = 65_535


def check_address(address: str) -> None:
    """Raises ValueError if `address` is not the address of a Dask scheduler, such as tcp://scheduler:8786."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise ValueError(f"--cluster {address!r}: no address; legal: tcp://HOST:PORT or tls://HOST:PORT")
    if not 1 <= int(parts[1]) <= _LAST_PORT:
        raise ValueError(f"--cluster {address!r}: no port; legal: 1 to {_LAST_PORT}")


class ClusterError(RuntimeError):
    """There is no cluster, or it is gone. The message is for a person."""


def available() -> bool:
    """Whether Dask, an optional extra, is installed."""
    return find_spec("distributed") is not None


def measure_all(
    points: Sequence[Point],
    workloads: Mapping[str, SimulatedWorkload],
    inputs: Sequence[str],
    *,
    address: str | None,
    workers: int,
    done: Callable[[int, Row | str], None],
    idle: Callable[[], None],
) -> None:
    """Measure each of `points`. `inputs` names the workload of each.

    `done` is called in this thread with the number of the point and its row, or the reason why there is none,
    in the order in which they end. Dask starts a point anew whose worker has died, up to three times. `idle`
    is called, in another thread, each time that the cluster at `address` has had no worker for a while; the
    points wait for one.

    Raises:
        ClusterError: the cluster at `address` does not answer, or is lost.
    """
    from distributed import as_completed

    with (
        _client(address, min(workers, len(points))) as client,
        _watched(client, idle if address is not None else None),
    ):
        # A value that Dask makes on a worker is made anew if that worker dies; a scattered one would be lost.
        sent = {
            name: client.submit(_same, workloads[name], key=f"polyrhythm-inputs-{name}", pure=False)
            for name in dict.fromkeys(inputs)
        }
        program = mark(SOURCES)
        numbers: dict[Any, int] = {}
        for number, (point, name) in enumerate(zip(points, inputs, strict=True)):
            numbers[client.submit(measure, point, sent[name], program, pure=False)] = number
        for future in as_completed(list(numbers), loop=client.loop):
            done(numbers[future], _result(future, points[numbers[future]]))
            future.release()


def _same(workload: SimulatedWorkload) -> SimulatedWorkload:
    return workload


def _result(future: Any, point: Point) -> Row | str:
    """The row of a point, or why there is none."""
    from distributed import KilledWorker

    try:
        row: Row = future.result()
    except KilledWorker:
        return "its worker died each time, perhaps for want of memory"
    except CancelledError:
        raise ClusterError("the cluster is gone") from None
    except Exception as error:  # Whatever the simulation or the worker raised; the other points go on.
        return f"{type(error).__name__}: {error}"
    return row


@contextmanager
def _watched(client: Any, idle: Callable[[], None] | None) -> Iterator[None]:
    """Call `idle`, if it is given, when there is no worker, once until there is one again."""
    if idle is None:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        told = False
        while not ended.wait(IDLE_S):
            try:
                empty = not client.nthreads()
            except Exception:
                # The scheduler is lost: the thread that waits for results says so.
                return
            if empty and not told:
                idle()
            told = empty

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


async def _probe(address: str) -> None:
    """Raises ClusterError if no Dask scheduler answers at `address`.

    Dask itself waits for ever for a server that accepts connections and says nothing.
    """
    from distributed import rpc
    from distributed.security import Security

    try:
        async with asyncio.timeout(CONNECT_S):
            arguments = Security().get_connection_args("client")
            async with rpc(address, timeout=CONNECT_S, connection_args=arguments) as server:
                found = (await server.identity())["type"]
    except TimeoutError:
        raise ClusterError(f"{address}: no Dask scheduler answers within {CONNECT_S} s") from None
    except Exception as error:
        # Whatever Dask makes of another server's answer, or of missing keys for TLS.
        raise ClusterError(f"{address}: no Dask scheduler answers ({_line(error)})") from None
    if found != "Scheduler":
        raise ClusterError(f"{address}: a Dask {found.lower()}; legal: the scheduler's address")


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def _client(address: str | None, workers: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    for name in ("distributed", "distributed.client"):
        # Dask gives both loggers levels. It logs a lost scheduler with a traceback; the command says it.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        # Dask warns of inputs of more than 10 MB. They go to the cluster once.
        warnings.simplefilter("ignore", UserWarning)
        if address is not None:
            asyncio.run(_probe(address))
            try:
                client = Client(address, timeout=CONNECT_S, set_as_default=False)
            except (TimeoutError, OSError) as error:
                raise ClusterError(f"{address}: no Dask scheduler answers ({error})") from None
            with client:
                yield client
            return
        # Encrypted, with a key of its own: whoever may send a task runs programs as this user.
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None, security=True,
                silence_logs=logging.ERROR,
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):  # fmt: skip
            yield client
