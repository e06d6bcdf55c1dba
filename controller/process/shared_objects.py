# SPDX-License-Identifier: Apache-2.0
"""Messages between two processes in which large objects that both have travel as numbers.

The fabric, the jobs and the plan in force are arguments of nearly every call of a worker process, and
change little from call to call. Only what is new travels.
"""

from __future__ import annotations

import io
import itertools
import pickle
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from controller.model.flow_plans import FlowPlans
from controller.model.job import Job
from controller.model.plan import Plan
from topo.graph import Topology

KEPT: dict[type, int] = {Topology: 2, Plan: 4, Job: 20_000}
"""Which objects are shared, and how many of each kind are kept. Chosen: plans of 100,000 flows take tens of
megabytes each, and twice as many jobs as a cluster may have take less."""


_PART = "/"
"""Begins the name of a part of a shared object."""


@dataclass(frozen=True, slots=True)
class SharedMessage:
    """One message. `new` holds objects by number that the receiver lacks, `dropped` numbers that it may
    forget, and `data` the pickled content. After a `first` message it forgets all that it had before."""

    first: bool
    new: bytes
    dropped: tuple[int, ...]
    data: bytes


class ObjectSender:
    """The sender's side. Objects are recognised by identity: they are frozen, and kept as long as known.

    If it is uncertain whether the receiver has read a message, continue with a new sender.
    """

    def __init__(self) -> None:
        self._first = True
        self._numbers = itertools.count()
        self._known: dict[type, OrderedDict[int, tuple[int, Any]]] = {kind: OrderedDict() for kind in KEPT}
        self._things: dict[int, Any] = {}

    def message(self, content: Any) -> SharedMessage:
        """The message with `content`."""
        new: dict[int, Any] = {}
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = lambda thing: self._number(thing, new)  # type: ignore[method-assign]
        pickler.dump(content)
        sent = pickle.dumps(new, pickle.HIGHEST_PROTOCOL) if new else b""
        first, self._first = self._first, False
        return SharedMessage(first, sent, tuple(self._forget(set(new))), buffer.getvalue())

    def know(self, number: int, thing: Any) -> None:
        """The receiver has `thing` already, under a number of its own choice below 0."""
        self._known[type(thing)][id(thing)] = number, thing
        self._things[number] = thing

    def result(self, data: bytes) -> Any:
        """What the receiver has answered to the last message (`ObjectReceiver.answer`)."""
        unpickler = pickle.Unpickler(io.BytesIO(data))
        unpickler.persistent_load = self._referred  # type: ignore[method-assign]
        return unpickler.load()

    def _referred(self, reference: tuple[int, str]) -> Any:
        number, part = reference
        thing = self._things[number]
        if isinstance(thing, Job) and part:
            return thing.flows
        return thing.flows.jobs[part.removeprefix(_PART)] if part else thing

    def _number(self, thing: Any, new: dict[int, Any]) -> int | None:
        known = self._known.get(type(thing))
        if known is None:
            return None
        found = known.get(id(thing))
        if found is None:
            found = next(self._numbers), thing
            known[id(thing)] = found
            new[found[0]] = self._things[found[0]] = thing
        known.move_to_end(id(thing))
        return found[0]

    def _forget(self, just_sent: set[int]) -> list[int]:
        """Drop the objects that were used longest ago, but none of this message."""
        dropped = []
        for kind, most in KEPT.items():
            known = self._known[kind]
            while len(known) > most and next(iter(known.values()))[0] not in just_sent:
                number, _ = known.popitem(last=False)[1]
                del self._things[number]
                dropped.append(number)
        return dropped


class ObjectReceiver:
    """The receiver's side."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        # Number and part by identity. A part is the flows of a job, or those of a job of a plan.
        self._references: dict[int, tuple[int, str]] = {}
        self._own = itertools.count(-1, -1)

    def content(self, message: SharedMessage) -> Any:
        """The content of a message. Messages must be read in the order in which they were made."""
        if message.first:
            self._objects.clear()
            self._references.clear()
        for number, thing in pickle.loads(message.new).items() if message.new else ():
            self._hold(number, thing)
        unpickler = pickle.Unpickler(io.BytesIO(message.data))
        unpickler.persistent_load = self._objects.__getitem__  # type: ignore[method-assign]
        content = unpickler.load()
        for number in message.dropped:
            thing = self._objects.pop(number, None)
            for part, _ in _parts(thing):
                if self._references.get(id(part), (None,))[0] == number:
                    del self._references[id(part)]
        return content

    def answer(self, content: Any) -> bytes:
        """What goes back to the sender. What the sender has travels as its number, parts of it too."""
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = lambda thing: self._references.get(id(thing))  # type: ignore[method-assign]
        pickler.dump(content)
        return buffer.getvalue()

    def keep(self, thing: Any) -> int:
        """Keep an object that goes back to the sender; returns the number for `ObjectSender.know`. 0: it is
        of no kind that is kept."""
        if type(thing) not in KEPT:
            return 0
        number = next(self._own)
        self._hold(number, thing)
        return number

    def _hold(self, number: int, thing: Any) -> None:
        self._objects[number] = thing
        for part, name in _parts(thing):
            # The latest one that has the part is forgotten last.
            self._references[id(part)] = number, name


def _parts(thing: Any) -> Iterator[tuple[Any, str]]:
    """An object that is shared, and its parts that may be in other objects too, with their names."""
    if thing is not None:
        yield thing, ""
    if isinstance(thing, Job) and thing.flows:
        yield thing.flows, _PART
    if isinstance(thing, Plan) and isinstance(thing.flows, FlowPlans):
        for name, job in thing.flows.jobs.items():
            yield job, f"{_PART}{name}"
