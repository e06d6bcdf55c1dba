# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench p4runtime`: how fast tables are written, and compared with what they should hold.

Everything goes through the controller's own classes (`controller/southbound`) and over real sockets. The
switches are processes of their own on the same machine. The figures:

- `server_entries_per_s`: inserts per second into the embedded switch's table `ecmp`, in requests of 1,000
  that were encoded before.
- `encode_entries_per_s`, `finsy_encode_entries_per_s`: entries turned into serialised write requests, from
  the values that the controller and finsy each start from. `encode_speedup` is their ratio.
- `end_to_end_entries_per_s`, `finsy_end_to_end_entries_per_s`: the same inserts from values to the switch's
  last answer: by the controller's encoder and session, and by finsy's `Switch.insert` with 1,000 entries a
  call. Each has a switch of its own, and they take turns. `end_to_end_speedup` is their ratio.
- `reconcile_s`: the time to read back and compare 64 switches (`--switches`) that hold what they should, with
  the entries of `reconcile_ecmp_entries` in table `ecmp` of each; `reconcile_64x10k_s`: the same, for 64.
  The switches are stand-ins that answer from memory; `reconcile_stand_ins_cpu_s` is their processor time
  within it, and `reconcile_writes` is how many write requests they received (0: nothing differs).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import finsy
from finsy.p4entity import encode_entities
from finsy.p4schema import P4Schema
from finsy.proto import p4i, p4r
from google.protobuf import text_format

from controller.process.worker_process import WorkerProcess
from controller.routing.forwarding import pair
from controller.southbound import table_writes
from controller.southbound.artefacts import Artefacts, artefacts_dir, load_artefacts
from controller.southbound.client import SwitchClient
from controller.southbound.codec import Codec, PacketIn
from controller.southbound.desired import EcnProfile, Entry
from controller.southbound.diff import EntryUpdate, UpdateType
from controller.southbound.fleet import SwitchFleet, Target
from controller.southbound.table_writes import DesiredState, FabricCondition
from polyrhythm.bench.report import show
from polyrhythm.progress import working
from polyrhythm.subcommands import integer
from topo.generate import leaf_spine
from topo.graph import Topology

DEVICE_ID = 1
BATCH = 1000
SWITCHES = 64
_BUCKETS = 256
# Groups of 256 buckets: the fewest that make 10,000 entries of table `ecmp`.
_GROUPS = 40
_SPINES = SWITCHES
# Next hops of the entries that are written.
_HOPS = 8
_RATE = 100_000_000_000
_ECN = EcnProfile(5, 50, 0.1)
_READY_S = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm bench p4runtime`."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--batches",
        type=integer(1),
        default=16,
        metavar="N",
        help="requests of 1,000 inserts in each round, 1 to 60 (default %(default)s)",
    )
    parser.add_argument(
        "--rounds",
        type=integer(1),
        default=3,
        metavar="N",
        help="rounds, the median counts (default %(default)s)",
    )
    parser.add_argument(
        "--switches",
        type=integer(1),
        default=SWITCHES,
        metavar="N",
        help="switches that are read back, 1 to 64 (default %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the bench. Returns 1 if one of its processes does not start, 2 for bad options."""
    if args.batches > 60:
        print(f"polyrhythm bench p4runtime: --batches {args.batches}; legal: 1 to 60", file=sys.stderr)
        return 2
    if args.switches > SWITCHES:
        print(
            f"polyrhythm bench p4runtime: --switches {args.switches}; legal: 1 to {SWITCHES}", file=sys.stderr
        )
        return 2
    try:
        with working("measuring"):
            figures = {**asyncio.run(_writes(args.batches, args.rounds)), **_reconcile(args.switches)}
    except (OSError, RuntimeError, TimeoutError) as error:
        print(f"polyrhythm bench p4runtime: {error}", file=sys.stderr)
        return 1
    show(figures, args.json)
    return 0


# -- the fabric that is read back


def reconcile_fabric() -> tuple[Topology, tuple[str, ...], FabricCondition]:
    """A fabric with 64 leaves, their names, and failed links that make a group for each of 40 leaves."""
    topology = leaf_spine(SWITCHES, _SPINES, 1, host_bps=_RATE, fabric_bps=_RATE)
    leaves = tuple(s.name for s in topology.switches if s.name in topology.prefixes)
    spines = [s.name for s in topology.switches if s.name not in topology.prefixes]
    # Each of these leaves has lost another spine, so the others need a group for it.
    down = {pair(leaf, spine) for leaf, spine in zip(leaves[: _GROUPS + 1], spines, strict=False)}
    return topology, leaves, FabricCondition(frozenset(down))


@cache
def _fabric_is_set() -> FabricCondition:
    """Tell the controller's functions the fabric, once in a process; returns its condition."""
    topology, _, condition = reconcile_fabric()
    table_writes.set_fabric(topology, _ECN, artefacts_dir())
    return condition


def reconcile_entries(name: str) -> tuple[Entry, ...]:
    """The entries that a leaf of `reconcile_fabric` should have."""
    return table_writes.entries_of(name, DesiredState(_fabric_is_set()))


def _reconcile(switches: int) -> dict[str, Any]:
    topology, leaves, condition = reconcile_fabric()
    names = leaves[:switches]
    ecmp = [sum(e.table == "ecmp" for e in reconcile_entries(name)) for name in names]
    with _servers("stand-ins", str(switches)) as (addresses, counts):
        targets = {n: Target(addresses[n], topology.switch[n].device_id) for n in names}
        worker = WorkerProcess(topology, _ECN, artefacts_dir())
        try:
            took_s, cpu_s = asyncio.run(_read_back(topology, targets, condition, worker, counts))
        finally:
            worker.close()
        writes = counts()["writes"]
    return {
        "reconcile_64x10k_s": took_s if switches == SWITCHES else None,
        "reconcile_s": took_s,
        "reconcile_stand_ins_cpu_s": cpu_s,
        "reconcile_switches": len(names),
        "reconcile_ecmp_entries": min(ecmp),
        "reconcile_writes": writes,
    }


async def _read_back(
    topology: Topology,
    targets: Mapping[str, Target],
    condition: FabricCondition,
    worker: WorkerProcess,
    counts: Callable[[], dict[str, Any]],
) -> tuple[float, float]:
    """The time in s to read back all switches, and the stand-ins' processor time within it."""
    listener = _Listener()
    fleet = SwitchFleet(topology, targets, load_artefacts(), worker, listener)
    await worker.warm_up()
    await fleet.apply(DesiredState(condition))
    fleet.start()
    try:
        async with asyncio.timeout(_READY_S):
            await listener.all_ready(len(targets))
        before, began = counts()["cpu_s"], time.perf_counter()
        await fleet.read_back()
        return time.perf_counter() - began, counts()["cpu_s"] - before
    finally:
        await fleet.stop()


# -- writes


class _Listener:
    """Waits until switches are in service."""

    def __init__(self) -> None:
        self._ready: set[str] = set()
        self._changed = asyncio.Event()

    async def all_ready(self, number: int) -> None:
        """Wait until so many switches are in service."""
        while len(self._ready) < number:
            self._changed.clear()
            await self._changed.wait()

    async def switch_connected(self, name: str, fresh: bool) -> None:
        """The bench writes the tables itself."""

    def switch_ready(self, name: str, ports: Mapping[int, bool] | None) -> None:
        """A switch is in service."""
        self._ready.add(name)
        self._changed.set()

    def switch_lost(self, name: str, why: str) -> None:
        """The bench waits no longer for answers of a session that is lost: its calls fail."""

    def packet_in(self, name: str, packet: PacketIn) -> None:
        """No packet is sent."""

    def port_states(self, name: str, states: Mapping[int, bool]) -> None:
        """No port changes."""


@contextlib.contextmanager
def _servers(kind: str, *arguments: str) -> Iterator[tuple[dict[str, str], Callable[[], dict[str, Any]]]]:
    """The addresses of the servers of a process, and a function that asks it for its counts."""
    process = subprocess.Popen(
        [sys.executable, "-m", "polyrhythm.bench.switch_servers", kind, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def line() -> dict[str, Any]:
        said = process.stdout.readline() if process.stdout is not None else ""
        if not said:
            raise RuntimeError(f"the process of the {kind} has ended")
        found: dict[str, Any] = json.loads(said)
        return found

    def counts() -> dict[str, Any]:
        if process.stdin is not None:
            process.stdin.write("\n")
            process.stdin.flush()
        return line()

    try:
        yield line(), counts
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _values(count: int) -> list[tuple[int, int, int]]:
    """Group, bucket and next hop of entries for table `ecmp`."""
    return [(1 + i // _BUCKETS, i % _BUCKETS, 1 + i % _HOPS) for i in range(count)]


def _changes(count: int, operation: UpdateType) -> list[EntryUpdate]:
    return [
        EntryUpdate(operation, Entry("ecmp", (("group_id", g), ("bucket", b)), "set_next_hop", (hop,)))
        for g, b, hop in _values(count)
    ]


def _finsy_entries(count: int) -> list[finsy.P4TableEntry]:
    return [
        finsy.P4TableEntry(
            "ecmp",
            match=finsy.P4TableMatch(group_id=g, bucket=b),
            action=finsy.P4TableAction("set_next_hop", next_hop_id=hop),
        )
        for g, b, hop in _values(count)
    ]


async def _writes(batches: int, rounds: int) -> dict[str, Any]:
    artefacts = load_artefacts()
    codec = Codec(artefacts)
    count = batches * BATCH
    encoding = _encode(artefacts, count, rounds)
    inserts, deletes = _changes(count, UpdateType.INSERT), _changes(count, UpdateType.DELETE)
    served, ours, theirs = [], [], []
    with _servers("switch") as (own, _), _servers("switch") as (other, _):
        listener = _Listener()
        client = SwitchClient(
            "leaf1", own["leaf1"], DEVICE_ID, codec=codec, artefacts=artefacts, listener=listener
        )
        session = asyncio.create_task(client.run())
        info = artefacts_dir() / "polyrhythm.v1model.p4info.txtpb"
        options = finsy.SwitchOptions(p4info=info, p4blob=artefacts_dir() / "polyrhythm.v1model.json")
        try:
            async with asyncio.timeout(_READY_S):
                await listener.all_ready(1)
            async with finsy.Switch("leaf1", other["leaf1"], options) as switch:
                entries = _finsy_entries(count)
                for _ in range(rounds):
                    served.append(await _timed(client, codec.write_requests(DEVICE_ID, [inserts], BATCH)))
                    await client.write(codec.write_requests(DEVICE_ID, [deletes]))
                    began = time.perf_counter()
                    await _write(client, codec.write_requests(DEVICE_ID, [inserts]))
                    ours.append(time.perf_counter() - began)
                    await client.write(codec.write_requests(DEVICE_ID, [deletes]))
                    began = time.perf_counter()
                    for at in range(0, count, BATCH):
                        await switch.insert(entries[at : at + BATCH])
                    theirs.append(time.perf_counter() - began)
                    for at in range(0, count, BATCH):
                        await switch.delete(entries[at : at + BATCH])
        finally:
            session.cancel()
            await asyncio.gather(session, return_exceptions=True)
    own_s, finsy_s = statistics.median(ours), statistics.median(theirs)
    return {
        "server_entries_per_s": round(count / statistics.median(served)),
        **encoding,
        "end_to_end_entries_per_s": round(count / own_s),
        "finsy_end_to_end_entries_per_s": round(count / finsy_s),
        "end_to_end_speedup": finsy_s / own_s,
        "entries": count,
    }


async def _timed(client: SwitchClient, requests: Sequence[Sequence[bytes]]) -> float:
    began = time.perf_counter()
    await _write(client, requests)
    return time.perf_counter() - began


async def _write(client: SwitchClient, requests: Sequence[Sequence[bytes]]) -> None:
    refused = await client.write(requests)
    if refused:
        raise RuntimeError(f"the switch refused {len(refused)} entries: {refused[0].why}")


def _encode(artefacts: Artefacts, count: int, rounds: int) -> dict[str, Any]:
    """The encoders beside each other, in turn: the controller's as it is in its worker process."""
    codec = Codec(artefacts)
    schema = P4Schema(text_format.Parse(artefacts.p4info, p4i.P4Info()))
    changes, entries = _changes(count, UpdateType.INSERT), _finsy_entries(count)
    ours, theirs = [], []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        requests = codec.write_requests(DEVICE_ID, [changes], BATCH)
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        expected = tuple(
            p4r.WriteRequest(
                device_id=DEVICE_ID,
                updates=[
                    p4r.Update(type=p4r.Update.INSERT, entity=entity)
                    for entity in encode_entities(entries[at : at + BATCH], schema)
                ],
            ).SerializeToString()
            for at in range(0, count, BATCH)
        )
        theirs.append(time.perf_counter() - began)
        if Counter(requests[0]) != Counter(expected):
            raise RuntimeError("the two encoders do not write the same bytes")
    # The first round encodes each part for the first time.
    own_s, finsy_s = statistics.median(ours[1:]), statistics.median(theirs[1:])
    return {
        "encode_entries_per_s": round(count / own_s),
        "finsy_encode_entries_per_s": round(count / finsy_s),
        "encode_speedup": finsy_s / own_s,
        "first_encode_speedup": theirs[0] / ours[0],
    }
