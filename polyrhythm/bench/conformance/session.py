# SPDX-License-Identifier: Apache-2.0
"""A served switch and its primary client, which pushes programs and compares random updates."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from polyrhythm.bench.conformance.model import SwitchModel
from polyrhythm.bench.conformance.programs import Program
from polyrhythm.bench.conformance.read_draws import ReadDraws
from polyrhythm.bench.conformance.reads_model import WHOLE_ARRAY
from polyrhythm.bench.conformance.reads_model import expected as expected_read
from polyrhythm.bench.conformance.value_draws import ValueDraws
from polyrhythm.bench.conformance.values import Codes, canonical_entry

DEVICE_ID = 1
PORTS = (1, 2, 3, 4)
_ELECTION = p4r.Uint128(low=1)
_COMMIT = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
# A failed batch of so many updates always gets an error for each.
_BATCH = 40
_PATIENCE_S = 120.0
_SHOWN = 5
# Random reads after each batch, beside those of the whole state.
_READS = 12


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
    """Write random updates to a program just pushed, and compare codes, reads and state with the model."""
    outcome, model = OracleOutcome(), SwitchModel(program.info)
    _start(session, program, model, outcome)
    rng = Random(f"{seed}/conformance/{program.name}")
    draws, reads = Draws(rng, model, PORTS), ReadDraws(ValueDraws(rng, model.types), model)
    while outcome.requests < updates:
        batch = [draws.update() for _ in range(min(_BATCH, updates - outcome.requests))]
        # What the model expects of an update depends on those before it, as what the switch answers does.
        expected = [model.apply(update) for update in batch]
        codes = session.write(batch)
        for update, legal, code in zip(batch, expected, codes, strict=True):
            outcome.codes[_name(code)] += 1
            if code not in legal:
                outcome.disagree(f"{program.name}: {_name(code)}, not {_told(legal)}: {update}")
        outcome.requests += len(batch)
        requests = [*whole_state(model), *(reads.read() for _ in range(_READS))]
        outcome.requests += len(requests)
        _compare_reads(session, program, model, requests, outcome)
        if outcome.disagreements:
            # The states have parted: what follows would be the same fault again.
            return outcome
    return outcome


def _compare_reads(
    session: Session,
    program: Program,
    model: SwitchModel,
    requests: Iterable[p4r.Entity],
    outcome: OracleOutcome,
) -> None:
    """Make all reads that are legal as one batch, and each of the others alone."""
    batch: list[p4r.Entity] = []
    wanted: list[p4r.Entity] = []
    for request in requests:
        legal, answer = expected_read(model, request)
        if not legal:
            batch.append(request)
            wanted += answer
            continue
        code = int(rpc_code.OK)
        try:
            session.read(request)
        except grpc.RpcError as error:
            code = int(error.code().value[0])
        outcome.codes[_name(code)] += 1
        if code not in legal:
            outcome.disagree(f"{program.name}: {_name(code)}, not {_told(legal)}: read of {request}")
    try:
        told = session.read(*batch)
    except grpc.RpcError as error:
        said = f"{error.code().name} ({error.details()}), not OK: reads of {batch}"
        outcome.disagree(f"{program.name}: {said}")
        return
    outcome.codes["OK"] += len(batch)
    if _sorted(map(canonical_order, told)) != _sorted(wanted):
        said = _difference(_sorted(map(canonical_order, told)), _sorted(wanted))
        outcome.disagree(f"{program.name}: reads differ: {said}")


def _told(legal: Codes) -> str:
    """Codes with the sections of the specification that ask for them."""
    return " or ".join(f"{_name(code)} ({section})" for code, section in sorted(legal.items()))


def whole_state(model: SwitchModel) -> Iterator[p4r.Entity]:
    """Reads of all that a switch holds, but for cells of large arrays that were never written."""
    direct = p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())
    yield p4r.Entity(table_entry=direct)
    yield p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True))
    yield p4r.Entity(action_profile_member=p4r.ActionProfileMember())
    yield p4r.Entity(action_profile_group=p4r.ActionProfileGroup())
    for name in ("multicast_group_entry", "clone_session_entry"):
        engine = p4r.PacketReplicationEngineEntry()
        getattr(engine, name).SetInParent()
        yield p4r.Entity(packet_replication_engine_entry=engine)
    yield p4r.Entity(value_set_entry=p4r.ValueSetEntry())
    yield p4r.Entity(digest_entry=p4r.DigestEntry())
    externs = model.externs
    for number, counter in externs.counters.items():
        for index in _read_indices(counter.size, externs.counts[number]):
            yield p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=number, index=index))
    for number, meter in externs.meters.items():
        for index in _read_indices(meter.size, externs.rates[number]):
            yield p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=number, index=index))
    for number, register in externs.registers.items():
        if externs.types.scalar(register.type_spec)[0]:
            for index in _read_indices(register.size, externs.cells[number]):
                yield p4r.Entity(register_entry=p4r.RegisterEntry(register_id=number, index=index))


def _read_indices(size: int, written: Iterable[int]) -> Iterator[p4r.Index | None]:
    """None, which is every index, for a small array, or those that were written."""
    if size <= WHOLE_ARRAY:
        yield None
    else:
        yield from (p4r.Index(index=index) for index in written)


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


def canonical_order(entity: p4r.Entity) -> p4r.Entity:
    """A table entry with its match fields in the order of their ids; their values stay as they were sent."""
    if not entity.HasField("table_entry"):
        return entity
    kept = p4r.Entity()
    kept.CopyFrom(entity)
    fields = sorted(entity.table_entry.match, key=lambda item: item.field_id)
    del kept.table_entry.match[:]
    kept.table_entry.match.extend(fields)
    return kept


def _sorted(messages: Any) -> list[bytes]:
    return sorted(message.SerializeToString(deterministic=True) for message in messages)


def _difference(told: list[bytes], wanted: list[bytes]) -> str:
    extra, missing = Counter(told) - Counter(wanted), Counter(wanted) - Counter(told)
    first = f"{next(iter(extra), b'')!r} is not the model's, {next(iter(missing), b'')!r} is missing"
    return f"{extra.total()} more, {missing.total()} less: {first}"
