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
from collections.abc import Collection, Iterator
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
_GIVEN = 0
"""The number of the object that the receiver has from the start."""


@dataclass(frozen=True, slots=True)
class SharedMessage:
    """One message. `new` holds the objects that the receiver lacks with their numbers, pickled, each after
    those that are in it. `dropped` are numbers that it may forget, and `data` is the pickled content. After a
    `first` message it forgets all that it had before."""

    first: bool
    new: tuple[tuple[int, bytes], ...]
    dropped: tuple[int, ...]
    data: bytes


class ObjectSender:
    """The sender's side. Objects are recognised by identity: they are frozen, and kept as long as known.

    If it is uncertain whether the receiver has read a message, continue with a new sender. The receiver has
    `given` from the start (`ObjectReceiver.give`).
    """

    def __init__(self, given: Any = None) -> None:
        self._first = True
        self._numbers = itertools.count(_GIVEN + 1)
        self._known: dict[type, OrderedDict[int, tuple[int, Any]]] = {kind: OrderedDict() for kind in KEPT}
        self._things: dict[int, Any] = {}
        self._parts = _Parts()
        if given is not None:
            self._hold(_GIVEN, given)

    def message(self, content: Any) -> SharedMessage:
        """The message with `content`."""
        new: dict[int, bytes] = {}
        data = self._pickled(content, new)
        first, self._first = self._first, False
        return SharedMessage(first, tuple(new.items()), tuple(self._forget(new.keys())), data)

    def _pickled(self, content: Any, new: dict[int, bytes], unknown: Any = None) -> bytes:
        """The content, with references to what the receiver has, or gets in `new`; but not for `unknown`."""
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = (  # type: ignore[method-assign]
            lambda thing: self._reference(thing, new) if thing is not unknown else None
        )
        pickler.dump(content)
        return buffer.getvalue()

    def know(self, number: int, thing: Any) -> None:
        """The receiver has `thing` already, under a number of its own choice below 0."""
        self._hold(number, thing)

    def result(self, data: bytes) -> Any:
        """What the receiver has answered to the last message (`ObjectReceiver.answer`)."""
        unpickler = pickle.Unpickler(io.BytesIO(data))
        unpickler.persistent_load = self._referred  # type: ignore[method-assign]
        return unpickler.load()

    def _referred(self, reference: tuple[int, str]) -> Any:
        number, part = reference
        return _part_of(self._things[number], part)

    def _reference(self, thing: Any, new: dict[int, bytes]) -> tuple[int, str] | None:
        """The number of an object that is shared, or of one that it is a part of, with the name of the part;
        None for others."""
        known = self._known.get(type(thing))
        if known is None:
            return self._parts.reference(thing)
        found = known.get(id(thing))
        if found is None:
            # What is in it gets its number first.
            data = self._pickled(thing, new, thing)
            found = next(self._numbers), thing
            new[found[0]] = data
            self._hold(*found)
        known.move_to_end(id(thing))
        return found[0], ""

    def _hold(self, number: int, thing: Any) -> None:
        self._known[type(thing)][id(thing)] = number, thing
        self._things[number] = thing
        self._parts.add(number, thing)

    def _forget(self, just_sent: Collection[int]) -> list[int]:
        """Drop the objects that were used longest ago, but none of this message."""
        dropped = []
        for kind, most in KEPT.items():
            known = self._known[kind]
            while len(known) > most and next(iter(known.values()))[0] not in just_sent:
                number, thing = known.popitem(last=False)[1]
                del self._things[number]
                self._parts.remove(number, thing)
                dropped.append(number)
        return dropped


class ObjectReceiver:
    """The receiver's side."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._parts = _Parts()
        self._own = itertools.count(-1, -1)
        self._given: Any = None

    def give(self, thing: Any) -> None:
        """Every sender knows that the receiver has this object."""
        self._given = thing
        self._hold(_GIVEN, thing)

    def content(self, message: SharedMessage) -> Any:
        """The content of a message. Messages must be read in the order in which they were made."""
        if message.first:
            self._objects.clear()
            self._parts = _Parts()
            if self._given is not None:
                self._hold(_GIVEN, self._given)
        for number, data in message.new:
            self._hold(number, self._read(data))
        content = self._read(message.data)
        for number in message.dropped:
            self._parts.remove(number, self._objects.pop(number, None))
        return content

    def _read(self, data: bytes) -> Any:
        unpickler = pickle.Unpickler(io.BytesIO(data))
        unpickler.persistent_load = self._referred  # type: ignore[method-assign]
        return unpickler.load()

    def _referred(self, reference: tuple[int, str]) -> Any:
        number, part = reference
        return _part_of(self._objects[number], part)

    def answer(self, content: Any) -> bytes:
        """What goes back to the sender. What the sender has travels as its number, parts of it too."""
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = self._parts.reference  # type: ignore[method-assign]
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
        self._parts.add(number, thing)


class _Parts:
    """References to shared objects and to their parts, by identity: the number of the object and the name of
    the part. A part of several objects is that of the latest one, which is forgotten last."""

    def __init__(self) -> None:
        self._references: dict[int, tuple[int, str]] = {}

    def reference(self, thing: Any) -> tuple[int, str] | None:
        """The reference to an object; None if it is neither shared nor a part of a shared one."""
        return self._references.get(id(thing))

    def add(self, number: int, thing: Any) -> None:
        """A shared object has come."""
        for part, name in _parts(thing):
            self._references[id(part)] = number, name

    def remove(self, number: int, thing: Any) -> None:
        """A shared object goes."""
        for part, _ in _parts(thing):
            if self._references.get(id(part), (None,))[0] == number:
                del self._references[id(part)]


def _parts(thing: Any) -> Iterator[tuple[Any, str]]:
    """An object that is shared, and its parts that may be in other objects too, with their names."""
    if thing is not None:
        yield thing, ""
    if isinstance(thing, Job) and thing.flows:
        yield thing.flows, _PART
    if isinstance(thing, Plan) and isinstance(thing.flows, FlowPlans):
        for name, job in thing.flows.jobs.items():
            yield job, f"{_PART}{name}"


def _part_of(thing: Any, name: str) -> Any:
    """The part of this name; the object itself for the empty name."""
    if isinstance(thing, Job) and name:
        return thing.flows
    return thing.flows.jobs[name.removeprefix(_PART)] if name else thing
