# SPDX-License-Identifier: Apache-2.0
"""A policy consists of three objects, which decide the paths, the order and the timing of jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from controller.interleave.timing import SENDERS, OwnPace, Timing
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
        ("sender", SENDERS.__contains__, ", ".join(SENDERS)),
        ("sets_shifts", _is_flag, _FLAG),
        ("holds_slots", _is_flag, _FLAG),
    ),
}
"""By part of a policy: the properties of its protocol, which values are legal, and that in words."""


class PolicyError(ValueError):
    """A policy does not exist, cannot be loaded, or its parts do not fit. The message is one line."""


@dataclass(frozen=True)
class Policy:
    """Which mechanisms a plan uses. `name` is what finds the policy again: the name under which it is
    registered, or "package.module:NAME".

    With `joint_search` the planner also searches over paths, levels and time-shifts together, from what the
    three objects decide one after another. A policy for the `simulator_only` has no effect of its own on
    real or emulated NICs. `distribution` and `version` name the installed package that the policy comes
    from; the registry fills them in.

    Raises:
        PolicyError: a part that is no Routing, Priority or Timing, or a search that the parts do not allow.
    """

    name: str
    routing: Routing = _BY_HASH
    priority: Priority = _EQUAL
    timing: Timing = _OWN_PACE
    joint_search: bool = False
    simulator_only: bool = False
    distribution: str = ""
    version: str = ""

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
        """Every option of the three objects: ("priority.levels", 6), and so on, sorted by name.

        "priority" itself stands for the class of that object.
        """
        return tuple(sorted(self._options()))

    def _options(self) -> Iterator[tuple[str, Any]]:
        yield "joint_search", self.joint_search
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
        """The same policy with other options. A name is that of a field of one of the three objects
        ("levels"), or has the part before it ("priority.levels").

        Raises:
            PolicyError: no part has such an option, several have it, or its value is not legal.
        """
        policy = self
        for name, value in options.items():
            policy = policy._with(name, value)
        return policy

    def _with(self, name: str, value: Any) -> Policy:
        before, _, option = name.rpartition(".")
        owners = [
            part
            for part, _ in _PARTS
            if before in ("", part) and option in {f.name for f in fields(getattr(self, part))}
        ]
        if not owners:
            legal = ", ".join(n for n, _ in self.options if "." in n) or "none"
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
