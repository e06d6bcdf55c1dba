# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm emulation`: the Mininet fabric as a process that exchanges JSON lines with its parent.

The messages are those of `polyrhythm fabric`. "ready" also has the address at which the controller must serve
agents, because their namespaces reach it only by a UNIX socket.
"""

from __future__ import annotations

import argparse
import json
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.wire.log_lines import configure_log
from hostagent.job import IterationRecord
from polyrhythm.emulation.agents import Agents
from polyrhythm.emulation.cpu_load import cpu_ticks, load_between, load_together
from polyrhythm.emulation.failure_injection import FailureInjector
from polyrhythm.emulation.folder import own_folder
from polyrhythm.emulation.programmed import wait_programmed
from polyrhythm.emulation.slow_machine import slow_machine
from polyrhythm.emulation.switches import Switches
from polyrhythm.fabric.jobs import LONGEST_SLOWDOWN, STALL_FLOOR_NS, STALL_PERIODS, job_spec
from polyrhythm.fabric.parent_messages import description, session_result
from polyrhythm.fabric.presence import Presence
from polyrhythm.fabric.session_options import add_session_options, chosen_scenario
from polyrhythm.scenario import ALONE_ITERATIONS, ALONE_WARMUP, Scenario
from polyrhythm.scenario.failures import Failure, FailureError, parse_failure
from polyrhythm_files import ConfigError
from topo.graph import UNKNOWN_HASH, HashSpec
from topo.mininet import MininetError, MininetFabric

# Chosen: how often the processes are checked, how often the controller reads counters, and the least time
# before a failure at which packets are captured.
POLL_S = 0.1
_COUNTER_POLL_MS = 500
_LEAST_BEFORE_NS = 1_000_000_000


class _ParentLeftError(Exception):
    """The parent has closed our input."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm emulation`. `polyrhythm run --fabric mininet` is the usual caller."""
    add_session_options(parser)
    parser.add_argument("--forever", action="store_true", help="run until the input ends")
    parser.add_argument(
        "--fail",
        action="append",
        default=[],
        metavar="WHAT@MS",
        help="a failure, as in `polyrhythm run --fail`; repeatable",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="folder for logs and records (default: a temporary folder)"
    )


def run(args: argparse.Namespace) -> int:
    """Build the network, wait for the controller, run the jobs, report, and take everything down."""
    configure_log()
    try:
        scenario = chosen_scenario(args)
        named = [parse_failure(text, scenario.topology) for text in args.fail]
        check_supported(scenario)
    except (ConfigError, FailureError) as error:
        print(error, file=sys.stderr)
        return 2
    profiles = json.loads(args.profiles.read_text()) if args.profiles else {}
    signal.signal(signal.SIGTERM, _end)
    try:
        with own_folder() as folder:
            failures = () if args.mode == "alone" else (*scenario.failures, *named)
            _serve(args, scenario, failures, profiles, folder)
    except MininetError as error:
        _send({"error": str(error)})
        return 1
    except (_ParentLeftError, KeyboardInterrupt):
        return 0
    return 0


def _serve(
    args: argparse.Namespace,
    scenario: Scenario,
    failures: Sequence[Failure],
    profiles: Mapping[str, Any],
    folder: Path,
) -> None:
    network = MininetFabric(scenario.topology, scenario.packet_bytes)
    try:
        set_tcp(network, scenario)
        switches = Switches(network, scenario, folder, seed=args.seed)
        agents_at = f"unix:{folder / 'agents.sock'}"
        _send({"ready": True, "fabric": describe(scenario, switches), "agents": agents_at})
        first_line = sys.stdin.readline()
        if not first_line:
            return
        controller = json.loads(first_line)
        emulation = Emulation(
            network, scenario, switches,
            FailureInjector(network, switches, failures, before_ns=_before_ns(scenario)),
            folder=args.keep or folder, sockets=folder,
            controller=controller["controller"], web=controller["web"], profiles=profiles, seed=args.seed,
        )  # fmt: skip
        if args.mode == "alone":
            result = emulation.alone()
        else:
            result = emulation.together(random_offsets=args.random_offsets, forever=args.forever)
        _send({"result": result})
        sys.stdin.read()
    finally:
        network.stop()


def check_supported(scenario: Scenario) -> None:
    """Refuse what this fabric cannot do.

    Raises:
        ConfigError: the scenario asks for it.
    """
    if scenario.mice is not None:
        raise ConfigError(f"{scenario.name}: mice: the Mininet fabric has no background flows")
    if scenario.floods:
        raise ConfigError(f"{scenario.name}: floods: the Mininet fabric has no floods")
    if scenario.pfc is not None:
        raise ConfigError(f"{scenario.name}: pfc: the switches of the Mininet fabric pause nobody")
    if scenario.port_choosers or scenario.dscp_keepers:
        raise ConfigError(f"{scenario.name}: nics: the NICs of the Mininet fabric let the controller choose")
    if scenario.any_order:
        raise ConfigError(f"{scenario.name}: nics: any_order: the NICs of the Mininet fabric keep order")
    if scenario.clock_offset_ns or scenario.clock_drift_ppm:
        raise ConfigError(f"{scenario.name}: all hosts of the Mininet fabric have the clock of the machine")
    for workload in scenario.workloads:
        name = f"{scenario.name}: job {workload.job.name}"
        if workload.changes:
            raise ConfigError(f"{name}: changes: on the Mininet fabric a job keeps its pattern")
        if workload.announces == "nothing":
            raise ConfigError(f"{name}: announces: on the Mininet fabric each job announces its profile")


def set_tcp(network: MininetFabric, scenario: Scenario) -> None:
    """Let the hosts' TCP ask for ECN, or not, where a job uses it."""
    for host in {host for w in scenario.workloads if w.on_kernel_tcp for host in w.job.hosts}:
        network.run(host, ["sysctl", "-qw", f"net.ipv4.tcp_ecn={int(scenario.tcp.ecn)}"])


def describe(scenario: Scenario, switches: Switches) -> dict[str, Any]:
    """The description that the controller reads: the graph, the servers of the switches, the ECN ramp."""
    topology = scenario.topology
    if not scenario.hash_known:
        topology = replace(topology, hash=HashSpec(UNKNOWN_HASH))
    shown = description(scenario, topology, switches.address)
    ramp = scenario.tcp.ramp
    return {
        **shown,
        "ecn": {**shown["ecn"], "tcp": {"kmin": ramp.kmin, "kmax": ramp.kmax, "pmax": ramp.pmax}},
        "clock": "host",
        "control_delay_ns": 0,
        "poll_ms": _COUNTER_POLL_MS,
        # The jobs announce the profiles that the session "alone" measured, so iterations count at once.
        "profile": "declared",
        "realign_pct": scenario.realign_pct,
    }


class Emulation:
    """Runs the jobs on a network that is up. `sockets` is a folder with a short path. The controller serves
    agents at `controller`, its page at `web`.

    Raises:
        MininetError: a process ended, or the jobs stalled.
    """

    def __init__(
        self,
        network: MininetFabric,
        scenario: Scenario,
        switches: Switches,
        failure_injector: FailureInjector,
        *,
        folder: Path,
        sockets: Path,
        controller: str,
        web: str,
        profiles: Mapping[str, Any],
        seed: int,
    ) -> None:
        self._network = network
        self._scenario = scenario
        self._switches = switches
        self._failure_injector = failure_injector
        self._folder = folder
        self._sockets = sockets
        self._controller = controller
        self._web = web
        self._profiles = profiles
        self._seed = seed
        self._first_ticks = cpu_ticks()

    def alone(self) -> dict[str, Any]:
        """Run every job alone, one after another."""
        names = [w.job.name for w in self._scenario.workloads]
        records: dict[str, list[IterationRecord]] = {}
        notes: list[str] = []
        idle: list[float] = []
        busy: list[float] = []
        for k, workload in enumerate(self._scenario.workloads):
            agents = self._agents(
                [workload.job.name], list(workload.job.hosts), f"alone-{k}", 0, arrivals=False
            )
            try:
                self._begin(agents)
                idle.append(self._load_until(agents.start_ns))
                targets = {workload.job.name: ALONE_WARMUP + ALONE_ITERATIONS + 1}
                notes += self._follow(agents, targets, k, len(names))
                busy.append(load_between(self._first_ticks, cpu_ticks()))
            finally:
                agents.stop()
            records[workload.job.name] = agents.records(workload.job.name)
        result = self._result(records, {}, notes, [], profiled=twin_records(self._scenario, records))
        return result | {"load": load_together(idle, busy)}

    def together(self, *, random_offsets: bool, forever: bool) -> dict[str, Any]:
        """Run all jobs at once, until each has done its iterations, or for ever."""
        scenario = self._scenario
        names = [w.job.name for w in scenario.workloads]
        hosts = [h.name for h in scenario.topology.hosts]
        agents = self._agents(
            names, hosts, "together", scenario.start_jitter_ns, random_offsets=random_offsets
        )
        self._begin(agents)
        self._failure_injector.start(agents.start_ns)
        usual = scenario.warmup + scenario.iterations + 1
        targets = {w.job.name: w.iterations or usual for w in scenario.workloads}
        notes = self._follow(agents, targets, 0, 1, forever=forever)
        self._failure_injector.close()
        failovers = self._failure_injector.failovers(agents.moves_ns())
        records = {name: agents.records(name) for name in names}
        presences = _presences(scenario, agents, records)
        notes += slow_machine(scenario, self._profiles)
        return self._result(records, presences, notes, failovers)

    def _agents(
        self,
        jobs: list[str],
        hosts: list[str],
        folder: str,
        jitter_ns: int,
        *,
        random_offsets: bool = False,
        arrivals: bool = True,
    ) -> Agents:
        return Agents(
            self._network, self._scenario, self._folder / folder, sockets=self._sockets / folder,
            controller=self._controller, jobs=jobs,
            hosts=hosts, profiles=self._profiles, seed=self._seed, start_jitter_ns=jitter_ns,
            random_offsets=random_offsets, arrivals=arrivals,
        )  # fmt: skip

    def _load_until(self, time_ns: int) -> float:
        """The load of the machine until a time."""
        before = cpu_ticks()
        if select.select([sys.stdin], [], [], max(0.0, (time_ns - time.monotonic_ns()) / 1e9))[0]:
            raise _ParentLeftError
        return load_between(before, cpu_ticks())

    def _begin(self, agents: Agents) -> None:
        """Start the jobs as soon as all agents serve and all switches have their tables."""
        agents.wait_ready()
        wait_programmed(self._web)
        agents.begin()

    def _follow(
        self, agents: Agents, targets: Mapping[str, int], part: int, parts: int, *, forever: bool = False
    ) -> list[str]:
        """Wait until every worker of every job has done the job's number of iterations, or the job has left.

        A job that is `LONGEST_SLOWDOWN` times slower than alone is not waited for. Returns a note on each.
        """
        workloads = {w.job.name: w for w in self._scenario.workloads}
        longest = max(w.longest_period_ns for w in workloads.values())
        last = max(w.arrival_ns for w in workloads.values())
        stall_s = (last + max(STALL_FLOOR_NS, STALL_PERIODS * longest)) / 1e9
        given_up: dict[str, str] = {}
        seen, moved = 0, time.monotonic()
        while True:
            now_ns = time.monotonic_ns()
            parts_done = {job: agents.progress(job, n, now_ns) for job, n in targets.items()}
            for job, n in targets.items():
                limit_ns = LONGEST_SLOWDOWN * n * workloads[job].longest_period_ns
                waited_ns = now_ns - agents.begins_ns(job)
                if parts_done[job] < 1 and agents.stops_ns(job) is None and waited_ns > limit_ns:
                    given_up.setdefault(job, _starved(job, n, agents.finished(job)))
            done = min((v for job, v in parts_done.items() if job not in given_up), default=1.0)
            if done >= 1 and not forever:
                return list(given_up.values())
            if not seen:
                self._first_ticks = cpu_ticks()
            if select.select([sys.stdin], [], [], POLL_S)[0]:
                raise _ParentLeftError
            self._switches.check()
            self._failure_injector.poll()
            count = agents.poll()
            if count != seen:
                seen, moved = count, time.monotonic()
                _send({"progress": (part + done) / parts})
            elif time.monotonic() - moved > stall_s and not forever:
                behind = [job for job, v in parts_done.items() if v < 1]
                raise MininetError(f"no iteration has ended for {stall_s:g} s; not done: {', '.join(behind)}")

    def _result(
        self,
        records: Mapping[str, list[IterationRecord]],
        presence: Mapping[str, Presence],
        notes: list[str],
        failovers: Sequence[Mapping[str, Any]],
        profiled: Mapping[str, Sequence[IterationRecord]] | None = None,
    ) -> dict[str, Any]:
        specs = {w.job.name: job_spec(w, self._profiles.get(w.job.name)) for w in self._scenario.workloads}
        always = Presence(0, None, None, 0)
        return session_result(
            records,
            specs,
            presence={name: presence.get(name, always) for name in records},
            ended_ns=time.monotonic_ns(),
            deterministic=False,
            notes=[*self._switches.notes, *notes, *self._failure_injector.notes],
            failovers=failovers,
            profiled=profiled,
        )


def twin_records(
    scenario: Scenario, records: Mapping[str, Sequence[IterationRecord]]
) -> dict[str, list[IterationRecord]]:
    """For each job the iterations of all jobs that do the same: same pattern, GPUs, sender and host rates.

    On a machine in real time the same job takes 287 ms in one measurement and 305 ms in the next. Twins whose
    profiles differ by so much would be given priority levels where a time-shift fits, so they share one
    profile.
    """
    topology = scenario.topology
    found: dict[str, list[IterationRecord]] = {}
    groups: dict[tuple[object, ...], list[IterationRecord]] = {}
    for workload in scenario.workloads:
        job = workload.job
        rates = tuple(topology.host[host].rate_bps for host in job.hosts)
        key = (
            job.model, job.gpus, job.profile, job.sender, workload.steps, workload.increase_timer,
            workload.jitter, workload.pcie, rates,
        )  # fmt: skip
        groups.setdefault(key, []).extend(replace(r, job="") for r in records[job.name])
        found[job.name] = groups[key]
    return found


def _presences(
    scenario: Scenario, agents: Agents, records: Mapping[str, Sequence[IterationRecord]]
) -> dict[str, Presence]:
    """When each job was on the fabric. All its iterations count."""
    found = {}
    for workload in scenario.workloads:
        job = workload.job.name
        own = records[job]
        left_ns = agents.stops_ns(job)
        if workload.iterations is not None and agents.finished(job) >= workload.iterations:
            left_ns = max(r.end_ns for r in own)
        start_ns = min((r.start_ns for r in own), default=agents.begins_ns(job))
        found[job] = Presence(start_ns, left_ns, None, 0)
    return found


def _starved(job: str, target: int, finished: int) -> str:
    return (
        f"job {job} starved: in {LONGEST_SLOWDOWN} times the time that {target} iterations take alone it "
        f"finished {finished}"
    )


def _before_ns(scenario: Scenario) -> int:
    """How long before a failure the capture starts: every flow has sent in that time."""
    return max(_LEAST_BEFORE_NS, 3 * max(w.job.profile.period_ns for w in scenario.workloads))


def _end(*_: object) -> None:
    raise KeyboardInterrupt


def _send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
