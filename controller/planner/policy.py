# SPDX-License-Identifier: Apache-2.0
"""A policy consists of three objects, which decide the paths, the order and the timing of jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from controller.interleave.timing import SENDER_CHOICES, OwnPace, Timing
from controller.model import PolicyReference
from controller.priority.priorities import Equal
from controller.priority.protocol import Priority
from controller.routing.protocol import Routing
from controller.routing.routings import Ecmp

_BY_HASH, _EQUAL, _OWN_PACE = Ecmp(), Equal(), OwnPace()
_PARTS = (("routing", Routing), ("priority", Priority), ("timing", Timing))


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_slowdown(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and math.isfinite(value) and value >= 1)


_FLAG = "True or False"
_LEGAL: Mapping[str, tuple[tuple[str, Callable[[Any], bool], str], ...]] = {
    "routing": (
        ("chooses_paths", _is_flag, _FLAG),
        ("max_moves", lambda n: n is None or _is_whole(n, 0), "None, or a whole number from 0"),
        (
            "cap_epsilon",
            lambda x: x is None or (math.isfinite(x) and x >= 0),
            "None, or a number from 0",
        ),
        ("lookahead", _is_flag, _FLAG),
    ),
    "priority": (
        ("orders_jobs", _is_flag, _FLAG),
        ("levels", lambda n: _is_whole(n, 1), "a whole number from 1"),
        ("exceeds_switch_levels", _is_flag, _FLAG),
        ("searchable", _is_flag, _FLAG),
    ),
    "timing": (
        ("sender", SENDER_CHOICES.__contains__, ", ".join(SENDER_CHOICES)),
        ("sets_shifts", _is_flag, _FLAG),
        ("holds_slots", _is_flag, _FLAG),
    ),
}
"""By part of a policy: the properties of its protocol, which values are legal, and that in words."""
OWN_OPTIONS = ("max_slowdown",)
"""The options of a policy that belong to none of its three objects."""


class PolicyError(ValueError):
    """A policy does not exist, cannot be loaded, or its parts do not fit. The message is one line."""


@dataclass(frozen=True)
class Policy:
    """Which mechanisms a plan uses. `name` is what finds the policy again: the name under which it is
    registered, or "package.module:NAME".

    With `joint_search` the planner also searches over paths, levels and time-shifts together, from what the
    three objects decide one after another. `max_slowdown` then bounds what a job may lose: its expected
    iteration is at most that many times the one under plain ECMP (None: no bound). A policy for the
    `simulator_only` has no effect of its own on real or emulated NICs. `distribution` and `version` name the
    installed package that the policy comes from; the registry fills them in.

    Raises:
        PolicyError: a part that is no Routing, Priority or Timing, a search that the parts do not allow, or a
            `max_slowdown` that is not legal or has no search to keep it.
    """

    name: str
    routing: Routing = _BY_HASH
    priority: Priority = _EQUAL
    timing: Timing = _OWN_PACE
    joint_search: bool = False
    simulator_only: bool = False
    distribution: str = ""
    version: str = ""
    max_slowdown: float | None = None

    def __post_init__(self) -> None:
        for part, protocol in _PARTS:
            value = getattr(self, part)
            if isinstance(value, type) or not isinstance(value, protocol):
                raise PolicyError(
                    f"policy {self.name}: {part} must be a {protocol.__name__} object, not {value!r}"
                )
            if not (is_dataclass(value) and type(value).__dataclass_params__.frozen):
                raise PolicyError(
                    f"policy {self.name}: {part} {type(value).__name__} must be a frozen dataclass"
                )
            for option, legal, words in _LEGAL[part]:
                self._check(part, option, legal, words)
        if self.joint_search and not (self.routing.chooses_paths and self.timing.holds_slots):
            raise PolicyError(
                f"policy {self.name}: the joint search needs a routing that chooses paths and a timing that "
                "gives jobs slots"
            )
        if not _is_slowdown(self.max_slowdown):
            raise PolicyError(
                f"policy {self.name}: max_slowdown is {self.max_slowdown!r}; legal: None, or a number from 1"
            )
        if self.max_slowdown is not None and not self.joint_search:
            raise PolicyError(
                f"policy {self.name}: max_slowdown is {self.max_slowdown:g}, but only a policy with the "
                "joint search can keep it; legal: None"
            )

    def _check(self, part: str, option: str, legal: Callable[[Any], bool], words: str) -> None:
        owner = getattr(self, part)
        where = f"policy {self.name}: {part} {type(owner).__name__}: {option}"
        try:
            value = getattr(owner, option)
            fits = legal(value)
        except Exception as error:  # A property of a foreign object may raise anything.
            raise PolicyError(f"{where}: {type(error).__name__}: {error}") from None
        if not fits:
            raise PolicyError(f"{where} is {value!r}; legal: {words}")

    @property
    def depends_on_jobs(self) -> bool:
        """Whether a plan depends on the profiles of the jobs, and not only on their flows."""
        return self.priority.orders_jobs or self.timing.sets_shifts

    @property
    def job_by_job(self) -> bool:
        """Whether the plan of a job does not depend on the other jobs."""
        return not (self.routing.chooses_paths or self.depends_on_jobs)

    @property
    def options(self) -> tuple[tuple[str, Any], ...]:
        """Every option: "max_slowdown", and those of the three objects: ("priority.levels", 6), and so on,
        sorted by name.

        "priority" itself stands for the class of that object.
        """
        return tuple(sorted(self._options()))

    def _options(self) -> Iterator[tuple[str, Any]]:
        yield "joint_search", self.joint_search
        yield "max_slowdown", self.max_slowdown
        for part, _ in _PARTS:
            value = getattr(self, part)
            yield part, type(value).__name__
            for f in fields(value):
                option = getattr(value, f.name)
                simple = option is None or isinstance(option, bool | int | float | str)
                yield f"{part}.{f.name}", option if simple else repr(option)

    @property
    def reference(self) -> PolicyReference:
        """The reference to this policy, which plans, checkpoints, the store and REST contain."""
        return PolicyReference(self.name, self.distribution, self.version, self.options)

    def with_options(self, options: Mapping[str, Any]) -> Policy:
        """The same policy with other options. A name is "max_slowdown", that of a field of one of the three
        objects ("levels"), or has the part before it ("priority.levels").

        Raises:
            PolicyError: no part has such an option, several have it, or its value is not legal.
        """
        policy = self
        for name, value in options.items():
            policy = policy._with(name, value)
        return policy

    def _with(self, name: str, value: Any) -> Policy:
        if name in OWN_OPTIONS:
            own: dict[str, Any] = {name: value}
            return replace(self, **own)
        before, _, option = name.rpartition(".")
        owners = [
            part
            for part, _ in _PARTS
            if before in ("", part) and option in {f.name for f in fields(getattr(self, part))}
        ]
        if not owners:
            legal = ", ".join(n for n, _ in self.options if "." in n or n in OWN_OPTIONS)
            raise PolicyError(f"policy {self.name} has no option {name}; its options: {legal}")
        if len(owners) > 1:
            legal = " or ".join(f"{part}.{option}" for part in owners)
            raise PolicyError(f"policy {self.name}: option {name} is ambiguous: say {legal}")
        try:
            changed = replace(getattr(self, owners[0]), **{option: value})
        except (TypeError, ValueError) as error:
            raise PolicyError(f"policy {self.name}: {error}") from None
        parts: dict[str, Any] = {owners[0]: changed}
        return replace(self, **parts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a registered policy as its reference. A policy that another process could not find by its
        name is pickled with its objects."""
        from controller.planner.registry import resolve

        try:
            if resolve(self.reference) == self:
                return resolve, (self.reference,)
        except PolicyError:
            pass
        return _composed, tuple(getattr(self, f.name) for f in fields(self))


def _composed(*values: Any) -> Policy:
    return Policy(*values)
