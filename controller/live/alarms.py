# SPDX-License-Identifier: Apache-2.0
"""What an operator should look at now, derived from the state, and since when it is so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from controller.model.view import Alarm, JobView, SwitchView

# Chosen: one alarm of failed probes names so many flows. All are in /probes.
_NAMED = 5


class Alarms:
    """The alarms of one controller. An alarm keeps its time of begin as long as its condition holds."""

    def __init__(self) -> None:
        self._since_ns: dict[tuple[str, str], int] = {}

    def at(
        self,
        now_ns: int,
        switches: Iterable[SwitchView],
        jobs: Iterable[JobView],
        failed_probes: Set[str],
        history_off: str,
    ) -> tuple[Alarm, ...]:
        """The alarms now, by kind and subject. `failed_probes` names the flows whose verification has failed;
        `history_off` says why nothing is stored, empty: it is."""
        found = dict(_conditions(switches, jobs, failed_probes, history_off))
        self._since_ns = {key: self._since_ns.get(key, now_ns) for key in sorted(found)}
        return tuple(Alarm(*key, since_ns, found[key]) for key, since_ns in self._since_ns.items())


def _conditions(
    switches: Iterable[SwitchView], jobs: Iterable[JobView], failed_probes: Set[str], history_off: str
) -> Iterator[tuple[tuple[str, str], str]]:
    for switch in switches:
        if switch.state != "ready":
            text = f"switch {switch.name} has no session (it is {switch.state}); its entries stay in force"
            yield ("silent_switch", switch.name), text
    for job in jobs:
        if text := _starved(job):
            yield ("starved_job", job.name), text
    if history_off:
        yield ("history_off", ""), f"nothing outlasts this process: {history_off}"
    if failed_probes:
        named = ", ".join(sorted(failed_probes)[:_NAMED])
        more = len(failed_probes) - _NAMED
        others = f" and {more} more" if more > 0 else ""
        text = f"INT probes have not confirmed the paths of {len(failed_probes)} flows: {named}{others}"
        yield ("failed_probes", ""), text


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
