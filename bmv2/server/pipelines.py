# SPDX-License-Identifier: Apache-2.0
"""The pipeline that a switch runs, and the one that waits to follow it (P4Runtime 1.5, chapter 12)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from finsy.proto import p4r

from bmv2.program import P4Program, P4ProgramError, load_program
from bmv2.server.dataplane import DataPlane, Effect
from bmv2.server.errors import FAILED_PRECONDITION, NOT_FOUND, RESOURCE_EXHAUSTED, StatusError, invalid
from bmv2.server.profiles import PortTest
from bmv2.server.schema import Schema
from bmv2.server.store import EntityStore

# Switches of one fabric get the same program at one moment: the first compiles it, the rest find it cached.
_COMPILING = threading.Lock()
# Updates that wait for COMMIT. Chosen: more than any table set of ours holds, at some 100 MB of memory.
_MAX_PENDING = 1_000_000


@dataclass(frozen=True, eq=False, slots=True)
class HeldPipeline:
    """A checked pipeline, what clients wrote for it, and the effects that wait until it is committed."""

    config: p4r.ForwardingPipelineConfig
    program: P4Program
    store: EntityStore
    pending: list[Effect] = field(default_factory=list)


def build_pipeline(config: p4r.ForwardingPipelineConfig, port_exists: PortTest) -> HeldPipeline:
    """Check a config and compile its program, which may take seconds.

    Raises StatusError (INVALID_ARGUMENT, UNIMPLEMENTED) where the switch cannot realise it.
    """
    if not config.HasField("p4info"):
        raise invalid("pipeline config: P4Info is missing")
    if not config.p4_device_config:
        raise invalid("pipeline config: the device config (p4c's BMv2 JSON) is missing")
    try:
        with _COMPILING:
            program = load_program(config.p4_device_config)
    except P4ProgramError as error:
        raise invalid(f"device config: {error}") from None
    schema = Schema.parse(config.p4info, program.ir)
    kept = p4r.ForwardingPipelineConfig()
    kept.CopyFrom(config)
    return HeldPipeline(kept, program, EntityStore(schema, program.ir, port_exists))


class Pipelines:
    """The committed and the saved pipeline of one switch. Not thread-safe: its owner holds a lock.

    Once a pipeline is saved, reads and writes are about it. What is written takes effect with COMMIT.
    `landed` is the one that runs in the data plane, set and used on the data-plane thread.
    """

    def __init__(self, plane: DataPlane, deliver: Callable[[Callable[[], None]], None]) -> None:
        self._plane = plane
        self._deliver = deliver
        self._committed: HeldPipeline | None = None
        self._saved: HeldPipeline | None = None
        self.landed: HeldPipeline | None = None

    def committed(self) -> HeldPipeline:
        """The pipeline that packets meet; StatusError (FAILED_PRECONDITION) if there is none."""
        if self._committed is None:
            raise StatusError(FAILED_PRECONDITION, "No forwarding pipeline config set for this device.")
        return self._committed

    def addressed(self) -> HeldPipeline:
        """The pipeline of reads and writes; StatusError (FAILED_PRECONDITION) if there is none."""
        return self.committed() if self._saved is None else self._saved

    def write(self, updates: Sequence[p4r.Update]) -> list[StatusError | None]:
        """Apply updates in order; a failed one leaves the others in force. Gives the error of each."""
        pipeline = self.addressed()
        waiting = len(pipeline.pending)
        if pipeline is self._saved and waiting + len(updates) > _MAX_PENDING:
            raise StatusError(
                RESOURCE_EXHAUSTED, f"write: {waiting} updates wait for COMMIT, of {_MAX_PENDING} that can"
            )
        effects: list[Effect] = []
        outcomes: list[StatusError | None] = []
        for update in updates:
            try:
                effects.append(pipeline.store.apply(update))
                outcomes.append(None)
            except StatusError as error:
                outcomes.append(error)
        if pipeline is self._saved:
            pipeline.pending.extend(effects)
        elif effects:
            self._deliver(lambda: self._take_effect(effects))
        return outcomes

    def save(self, pipeline: HeldPipeline) -> None:
        """Keep a pipeline for COMMIT. One saved before is forgotten, with all that was written to it."""
        self._saved = pipeline

    def commit_saved(self) -> None:
        """Run the saved pipeline with what was written to it; StatusError (NOT_FOUND) if there is none."""
        if self._saved is None:
            raise StatusError(NOT_FOUND, "pipeline config: nothing was saved to commit")
        effects = list(self._saved.pending)
        self._saved.pending.clear()
        self.commit(self._saved, effects)

    def commit(self, pipeline: HeldPipeline, effects: Sequence[Effect] = ()) -> None:
        """Run a pipeline from an empty state, then let the effects give it its entities."""
        self._committed, self._saved = pipeline, None
        preinitialised = pipeline.store.tables.preinitialised

        def land() -> None:
            self._plane.load(pipeline.program, preinitialised)
            self.landed = pipeline
            self._take_effect(effects)

        self._deliver(land)

    def reconcile(self, pipeline: HeldPipeline) -> None:
        """Run a pipeline with the entities of the committed one.

        Raises StatusError (INVALID_ARGUMENT), nothing changed, where they do not fit it.
        """
        current = self._committed
        if current is None:
            self.commit(pipeline)
        elif (
            current.config.p4_device_config == pipeline.config.p4_device_config
            and current.config.p4info == pipeline.config.p4info
        ):
            # The same program under another cookie: nothing to touch in the data plane.
            current.config.ClearField("cookie")
            if pipeline.config.HasField("cookie"):
                current.config.cookie.CopyFrom(pipeline.config.cookie)
            self._saved = None
        else:
            self.commit(pipeline, pipeline.store.replay(current.store))

    def _take_effect(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            effect(self._plane)
