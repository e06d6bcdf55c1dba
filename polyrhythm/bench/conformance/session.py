# SPDX-License-Identifier: Apache-2.0
"""A served switch and its primary client, which pushes programs and compares random updates."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status

from bmv2.hostloop import HostLoop
from bmv2.server import serve
from bmv2.switch import EmbeddedSwitch
from polyrhythm.bench.conformance.draws import Draws
from polyrhythm.bench.conformance.model import SwitchModel, counted
from polyrhythm.bench.conformance.programs import Program
from polyrhythm.bench.conformance.values import canonical_entry

DEVICE_ID = 1
PORTS = (1, 2, 3, 4)
_ELECTION = p4r.Uint128(low=1)
_COMMIT = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
# A failed batch of so many updates always gets an error for each.
_BATCH = 40
_PATIENCE_S = 120.0
_SHOWN = 5
# Counter arrays beyond this size are read by index, for a wildcard would give every cell.
_WHOLE_ARRAY = 2048


@dataclass
class OracleOutcome:
    """Requests made, and what the switch answered otherwise than the model: its first few, in words."""

    requests: int = 0
    disagreements: int = 0
    shown: list[str] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)

    def disagree(self, said: str) -> None:
        """Note a disagreement."""
        self.disagreements += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(said)


class RefusedError(Exception):
    """The server refuses a pipeline. The message is the server's."""


class Session:
    """The primary client of a P4Runtime server."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(
            address,
            options=[("grpc.max_metadata_size", 1 << 20), ("grpc.max_receive_message_length", 64 << 20)],
        )
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._over = threading.Event()
        self._stream = self._stub.StreamChannel(self._say())
        next(self._stream)

    def _say(self) -> Iterator[p4r.StreamMessageRequest]:
        claim = p4r.MasterArbitrationUpdate(device_id=DEVICE_ID, election_id=_ELECTION)
        yield p4r.StreamMessageRequest(arbitration=claim)
        self._over.wait()

    def __enter__(self) -> Session:
        """Be the primary until `__exit__`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the session."""
        self._over.set()
        self._channel.close()

    def push(self, program: Program) -> None:
        """Push a program. Raises RefusedError with the server's reason."""
        config = p4r.ForwardingPipelineConfig(p4info=program.info, p4_device_config=program.device_config)
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=DEVICE_ID, election_id=_ELECTION, action=_COMMIT, config=config
        )
        try:
            self._stub.SetForwardingPipelineConfig(request, timeout=_PATIENCE_S)
        except grpc.RpcError as error:
            raise RefusedError(f"{error.code().name}: {error.details()}") from None

    def read(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        """Read entities."""
        request = p4r.ReadRequest(device_id=DEVICE_ID, entities=entities)
        answers = self._stub.Read(request, timeout=_PATIENCE_S)
        return [entity for answer in answers for entity in answer.entities]

    def write(self, updates: Sequence[p4r.Update]) -> list[int]:
        """Write a batch; gives the code of each update."""
        request = p4r.WriteRequest(device_id=DEVICE_ID, election_id=_ELECTION, updates=updates)
        try:
            self._stub.Write(request, timeout=_PATIENCE_S)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNKNOWN:
                return [error.code().value[0]] * len(updates)
            metadata: Any = error.trailing_metadata()
            status = rpc_status.Status.FromString(dict(metadata)["grpc-status-details-bin"])
            return [p4r.Error.FromString(detail.value).canonical_code for detail in status.details]
        return [rpc_code.OK] * len(updates)


@contextmanager
def served_switch() -> Iterator[str]:
    """Serve an embedded switch with a few ports; gives its address."""
    loop = HostLoop()
    switch = EmbeddedSwitch("conformance", loop)
    for port in PORTS:
        switch.add_port(port, rate_bps=None, transmit=lambda frame: None)
    server = serve(switch, loop, device_id=DEVICE_ID)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        yield server.address
    finally:
        server.stop()
        loop.stop()
        thread.join()
        loop.close()


def compare(session: Session, program: Program, updates: int, seed: int) -> OracleOutcome:
    """Write random updates to a program just pushed, and compare codes and state with the model."""
    outcome, model = OracleOutcome(), SwitchModel(program.info)
    _start(session, program, model, outcome)
    draws = Draws(Random(f"{seed}/conformance/{program.name}"), model, PORTS)
    while outcome.requests < updates:
        batch = [draws.update() for _ in range(min(_BATCH, updates - outcome.requests))]
        # What the model expects of an update depends on those before it, as what the switch answers does.
        expected = [model.apply(update) for update in batch]
        codes = session.write(batch)
        for update, legal, code in zip(batch, expected, codes, strict=True):
            outcome.codes[_name(code)] += 1
            if code not in legal:
                names = " or ".join(map(_name, sorted(legal)))
                outcome.disagree(f"{program.name}: {_name(code)}, not {names}: {update}")
        outcome.requests += len(batch)
        for kind, told, wanted in _states(session, model):
            outcome.requests += 1
            if told != wanted:
                outcome.disagree(f"{program.name}: {kind} differ: {_difference(told, wanted)}")
        if outcome.disagreements:
            # The states have parted: what follows would be the same fault again.
            return outcome
    return outcome


def _name(code: int) -> str:
    return rpc_code.Code.Name(code)  # type: ignore[arg-type]


def _start(session: Session, program: Program, model: SwitchModel, outcome: OracleOutcome) -> None:
    """Take the program's own entries, from p4c's file where there is one, and its default entries."""
    told = [entity.table_entry for entity in session.read(p4r.Entity(table_entry=p4r.TableEntry()))]
    default = p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True))
    defaults = [entity.table_entry for entity in session.read(default)]
    outcome.requests += 2
    # p4c's JSON tells the order of initial entries, but not the priorities that the source gives them.
    declared_entries = told if program.entries is None else program.entries
    if _unranked(told) != _unranked(declared_entries):
        outcome.disagree(f"{program.name}: the initial entries are not those of the source")
    model.start(told, defaults)
    for entry in defaults:
        table = model.tables[entry.table_id]
        if table.HasField("initial_default_action"):
            declared = table.initial_default_action
            if entry.action.action.action_id != declared.action_id:
                outcome.disagree(f"{program.name}: {table.preamble.name} has another default action: {entry}")


def _unranked(entries: Sequence[p4r.TableEntry]) -> list[bytes]:
    """Entries without their priorities, and without what p4c writes otherwise than a server."""
    kept = [canonical_entry(entry) for entry in entries]
    for entry in kept:
        entry.priority = 0
        entry.is_const = False
    return _sorted(kept)


def _states(session: Session, model: SwitchModel) -> Iterator[tuple[str, list[bytes], list[bytes]]]:
    """What the switch holds and what the model says, kind by kind, in one order."""
    direct = p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())
    read = [entity.table_entry for entity in session.read(p4r.Entity(table_entry=direct))]
    wanted = [_with_counter(model, entry) for entries in model.entries.values() for entry in entries.values()]
    yield "table entries", _sorted(canonical_order(entry) for entry in read), _sorted(wanted)
    default = p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True))
    read = [entity.table_entry for entity in session.read(default)]
    yield "default entries", _sorted(read), _sorted(model.defaults.values())
    members = session.read(p4r.Entity(action_profile_member=p4r.ActionProfileMember()))
    yield "members", _sorted(e.action_profile_member for e in members), _sorted(model.members.values())
    groups = session.read(p4r.Entity(action_profile_group=p4r.ActionProfileGroup()))
    yield "groups", _sorted(e.action_profile_group for e in groups), _sorted(model.groups.values())
    for name, held in (("multicast_group_entry", model.multicast), ("clone_session_entry", model.sessions)):
        engine = p4r.PacketReplicationEngineEntry()
        getattr(engine, name).SetInParent()
        engines = session.read(p4r.Entity(packet_replication_engine_entry=engine))
        found = [getattr(entity.packet_replication_engine_entry, name) for entity in engines]
        yield name, _sorted(found), _sorted(held.values())
    for number, counter in model.counters.items():
        wanted_cells = {index: data for (owner, index), data in model.cells.items() if owner == number}
        if counter.size <= _WHOLE_ARRAY:
            cells = session.read(p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=number)))
        else:
            wanted_entries = [
                p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=number, index=p4r.Index(index=index)))
                for index in wanted_cells
            ]
            cells = session.read(*wanted_entries) if wanted_entries else []
        told = {cell.counter_entry.index.index: cell.counter_entry.data for cell in cells}
        yield counter.preamble.name, _nonzero(told), _nonzero(wanted_cells)


def canonical_order(entry: p4r.TableEntry) -> p4r.TableEntry:
    """An entry with its match fields in the order of their ids; their values stay as they were sent."""
    kept = p4r.TableEntry()
    kept.CopyFrom(entry)
    fields = sorted(entry.match, key=lambda item: item.field_id)
    del kept.match[:]
    kept.match.extend(fields)
    return kept


def _with_counter(model: SwitchModel, entry: p4r.TableEntry) -> p4r.TableEntry:
    kept = canonical_entry(entry)
    counter = model.direct_counters.get(entry.table_id)
    if counter is None:
        kept.ClearField("counter_data")
    else:
        kept.counter_data.CopyFrom(counted(counter.spec.unit, entry.counter_data))
    return kept


def _nonzero(cells: Mapping[int, p4r.CounterData]) -> list[bytes]:
    return _sorted(
        p4r.CounterEntry(index=p4r.Index(index=index), data=data)
        for index, data in cells.items()
        if data != p4r.CounterData()
    )


def _sorted(messages: Any) -> list[bytes]:
    return sorted(message.SerializeToString(deterministic=True) for message in messages)


def _difference(told: list[bytes], wanted: list[bytes]) -> str:
    extra, missing = Counter(told) - Counter(wanted), Counter(wanted) - Counter(told)
    first = f"{next(iter(extra), b'')!r} is not the model's, {next(iter(missing), b'')!r} is missing"
    return f"{extra.total()} more, {missing.total()} less: {first}"
