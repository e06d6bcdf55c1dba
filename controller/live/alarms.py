# SPDX-License-Identifier: Apache-2.0
"""What an operator should look at now, derived from the state, and since when it is so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from controller.model.view import Alarm, FallbackFlow, JobView
from polyrhythm_files import listed

# Chosen: one alarm of flows or agents names so many. All are in /probes, /flows?fallback=true and /readyz.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class SilentAgents:
    """The hosts whose agents have no session, while fewer than the `needed` of all hosts have one."""

    hosts: Sequence[str]
    needed: int


@dataclass(frozen=True, slots=True)
class OperatingState:
    """What alarms are derived from.

    `silent_switches` maps switches without a session, and `wrong_entries` those with other entries than they
    should have, to the reason. `failed_cables`: name pairs, without drained ones. `failed_probes` names
    the flows whose verification has failed. `history_off` says why nothing is stored, `plan_failure` why the
    last plan could not be made; both empty: neither is so.
    """

    silent_switches: Mapping[str, str] = field(default_factory=dict)
    wrong_entries: Mapping[str, str] = field(default_factory=dict)
    failed_cables: Iterable[tuple[str, str]] = ()
    silent_agents: SilentAgents | None = None
    jobs: Iterable[JobView] = ()
    failed_probes: Collection[str] = ()
    fallback_flows: Sequence[FallbackFlow] = ()
    history_off: str = ""
    plan_failure: str = ""


class Alarms:
    """The alarms of one controller. An alarm keeps its time of begin as long as its condition holds."""

    def __init__(self) -> None:
        self._since_ns: dict[tuple[str, str], int] = {}

    def at(self, now_ns: int, state: OperatingState) -> tuple[Alarm, ...]:
        """The alarms of a state at a time, by kind and subject."""
        found = dict(_conditions(state))
        self._since_ns = {key: self._since_ns.get(key, now_ns) for key in sorted(found)}
        return tuple(Alarm(*key, since_ns, found[key]) for key, since_ns in self._since_ns.items())


def _conditions(state: OperatingState) -> Iterator[tuple[tuple[str, str], str]]:
    for switch, why in state.silent_switches.items():
        yield ("silent_switch", switch), f"switch {switch}: {why}; its entries stay in force"
    for switch, why in state.wrong_entries.items():
        yield ("wrong_entries", switch), f"switch {switch}: {why}"
    for cable in state.failed_cables:
        name = "-".join(cable)
        yield ("link_down", name), f"link {name} is down: no light, or its probes do not arrive"
    for job in state.jobs:
        if text := _starved(job):
            yield ("starved_job", job.name), text
    if (agents := state.silent_agents) is not None:
        yield (
            ("silent_agents", ""),
            f"the agents of {len(agents.hosts)} hosts have no session, and {agents.needed} hosts need one: "
            f"{listed(agents.hosts, _NAMED)}",
        )
    if state.plan_failure:
        yield ("plan_failed", ""), f"no plan could be made, so the last one stays: {state.plan_failure}"
    if state.history_off:
        yield ("history_off", ""), f"nothing outlasts this process: {state.history_off}"
    if failed := sorted(state.failed_probes):
        text = f"INT probes have not confirmed the paths of {len(failed)} flows: {listed(failed, _NAMED)}"
        yield ("failed_probes", ""), text
    if flows := state.fallback_flows:
        named = listed([f"{flow.flow} ({flow.why})" for flow in flows], _NAMED)
        yield ("fallback_flows", ""), f"agents have moved {len(flows)} flows to ECMP: {named}"


def _starved(job: JobView) -> str:
    """Why a job does not get on; empty: it does."""
    if job.silence:
        return f"job {job.name}: {job.silence}"
    if job.left_out:
        return f"job {job.name} is in no plan: {job.left_out}"
    if job.breaches:
        times = "once" if job.breaches == 1 else f"{job.breaches} times"
        return f"job {job.name} measured below its floor {times} in ten iterations in a row"
    return ""
