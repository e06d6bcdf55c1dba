# SPDX-License-Identifier: Apache-2.0
"""The policies that are installed: entry points of the group `polyrhythm.policies`, built-in ones too.

A policy is found by the name under which its package registers it, or by "package.module:NAME".
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from controller.model import PolicyReference
from controller.planner.policy import OWN_OPTIONS, Policy, PolicyError

GROUP = "polyrhythm.policies"
_OURS = "polyrhythm"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One registration: the object "module:NAME", and the distribution that registers it."""

    target: str
    distribution: str
    version: str


@lru_cache(maxsize=1)
def _entries() -> Mapping[str, tuple[_Entry, ...]]:
    """All registrations by name. A distribution that is found twice on the path counts once."""
    found: dict[str, dict[str, _Entry]] = {}
    for point in metadata.entry_points(group=GROUP):
        dist = point.dist
        name, version = (dist.name, dist.version) if dist is not None else ("", "")
        found.setdefault(point.name, {}).setdefault(name, _Entry(point.value, name, version))
    for point_name, entry in _source_tree():
        found.setdefault(point_name, {}).setdefault(_OURS, entry)
    return {name: tuple(entries.values()) for name, entries in sorted(found.items())}


def _source_tree() -> Iterator[tuple[str, _Entry]]:
    """The entry points in pyproject.toml, if Polyrhythm runs from a source tree.

    An editable install copies them into its metadata, and the copy may be older than the file.
    """
    path = Path(__file__).parents[2] / "pyproject.toml"
    if not path.is_file():
        return
    project = tomllib.loads(path.read_text("utf-8")).get("project", {})
    if project.get("name") == _OURS:
        for name, target in project.get("entry-points", {}).get(GROUP, {}).items():
            yield name, _Entry(target, _OURS, project.get("version", ""))


def registered() -> tuple[str, ...]:
    """The names of all registered policies, sorted. Imports no policy."""
    return tuple(_entries())


def policy_named(name: str) -> Policy:
    """A policy by its registered name, or by "package.module:NAME".

    Raises:
        PolicyError: there is no such policy, or it cannot be imported; the message says what would be legal.
    """
    return _imported(name) if ":" in name else registered_policy(name)


@lru_cache(maxsize=256)
def registered_policy(name: str) -> Policy:
    """A policy by its registered name only: for names that come over the network.

    Raises:
        PolicyError: no distribution registers it, several do, or it cannot be imported.
    """
    entries = _entries().get(name, ())
    if not entries:
        raise PolicyError(
            f"{name!r} is no policy; legal: {', '.join(registered())}, or package.module:NAME of an "
            "installed package"
        )
    if len(entries) > 1:
        by = " and ".join(sorted(e.distribution for e in entries))
        raise PolicyError(
            f"policy {name} is registered by {by}; legal: {', '.join(e.target for e in entries)}"
        )
    (entry,) = entries
    found = _load(name, entry.target)
    return replace(found, name=name, distribution=entry.distribution, version=entry.version)


@lru_cache(maxsize=256)
def _imported(name: str) -> Policy:
    found = _load(name, name)
    package = name.partition(":")[0].partition(".")[0]
    distribution = next(iter(metadata.packages_distributions().get(package, ())), "")
    version = metadata.version(distribution) if distribution else ""
    return replace(found, name=name, distribution=distribution, version=version)


def _load(name: str, target: str) -> Policy:
    module, _, attribute = target.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # The import runs foreign code, which can raise any exception.
        words = " ".join(str(error).split())
        raise PolicyError(
            f"policy {name}: {target} cannot be imported: {type(error).__name__}: {words}; legal: a "
            f"registered policy ({', '.join(registered())}) or package.module:NAME of an installed package"
        ) from None
    if not isinstance(found, Policy):
        raise PolicyError(
            f"policy {name}: {target} is of type {type(found).__name__}; legal: a Policy object "
            "(from polyrhythm import Policy)"
        )
    return found


@lru_cache(maxsize=256)
def resolve(reference: PolicyReference) -> Policy:
    """Import the policy of a reference in this process, with the options of the reference.

    Raises:
        PolicyError: the policy is not installed here, or its version, objects or options differ.
    """
    found = policy_named(reference.name)
    if (found.distribution, found.version) != (reference.distribution, reference.version):
        raise PolicyError(
            f"policy {reference.name} was made by {reference.distribution or 'no distribution'} "
            f"{reference.version or 'without a version'}; installed: "
            f"{found.distribution or 'no distribution'} {found.version}".rstrip()
        )
    known = dict(found.options)
    changed = {name: value for name, value in reference.options if known.get(name, ...) != value}
    for name, value in changed.items():
        if "." not in name and name not in OWN_OPTIONS:
            raise PolicyError(
                f"policy {reference.name}: {name} is {value} in the reference; installed: {known.get(name)}"
            )
    return found.with_options(changed)


class _Registered(Mapping[str, Policy]):
    """The registered policies by name; a policy is imported when it is first asked for."""

    def __getitem__(self, name: str) -> Policy:
        if not isinstance(name, str) or name not in _entries():
            raise KeyError(name)
        return registered_policy(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_entries())

    def __len__(self) -> int:
        return len(_entries())


POLICIES: Mapping[str, Policy] = _Registered()
