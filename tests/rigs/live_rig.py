# SPDX-License-Identifier: Apache-2.0
"""An embedded fabric whose jobs come and go as a test wants, under a controller in a process of its own."""

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from control_rig import eventually

from polyrhythm.fabric.assembly import EmbeddedFabric
from polyrhythm.fabric.clock_stream import ClockStream
from polyrhythm.fabric.jobs import job_spec
from polyrhythm.scenario import load_scenario

MS = 1_000_000
DATA_BYTES = 1082


class Live:
    """An embedded fabric in this process, with a controller in its own."""

    def __init__(self, fabric, controller):
        self.fabric, self.controller = fabric, controller
        self.scenario = fabric.scenario
        # DSCPs of the data that left each host, since the last look.
        self.left = defaultdict(lambda: defaultdict(int))
        for host in self.scenario.topology.hosts:
            fabric.hosts[host.name].nic._transmit = self.tap(host)
        fabric.boundary.stop()

    def tap(self, host):
        def leave(frame):
            if len(frame) == DATA_BYTES:
                self.left[host.name][frame[15] >> 2] += 1
            self.fabric.enter(host.name, frame)

        return leave

    def start(self, name, at_ms, *hosts):
        """Let a job arrive, on other hosts than the scenario's if some are given."""
        (workload,) = [w for w in self.scenario.workloads if w.job.name == name]
        spec = job_spec(workload, None)
        if hosts:
            spec = replace(spec, hosts=hosts, ring=tuple(zip(hosts, (*hosts[1:], hosts[0]), strict=True)))
        for rank, host in enumerate(spec.hosts):
            self.fabric.hosts[host].add_worker(spec, rank, at_ms * MS)

    def stop(self, name):
        """Let a job leave."""
        for host in self.fabric.hosts.values():
            for job, rank in list(host.workers):
                if job == name:
                    host.stop_worker(job, rank)

    def run(self, until_ms):
        """Let fabric time pass."""
        heap, boundary = self.fabric.heap, self.fabric.boundary
        heap.call_at(until_ms * MS, lambda: setattr(heap, "stop", True))
        while heap.now < until_ms * MS and heap.run():
            boundary.stop()

    def queued(self, switch):
        """Packets that have come into each (port, queue) of a switch."""
        counts = self.fabric.switches[switch].read_counter("ingress_packets")
        return {divmod(i, 8): packets for i, (packets, _) in enumerate(counts) if packets}

    def flow(self, name):
        """A flow of the plan in force."""
        plan = eventually(lambda: self.controller.api("plan"), "a plan")
        return next(f for f in plan["flows"] if f["flow"] == name)


@contextmanager
def live(tmp_path: Path, start_controller, policy, text, **told):
    """The scenario of `text` under a policy; `told` is more of the fabric's description."""
    file = tmp_path / "live.yaml"
    file.write_text(text)
    fabric = EmbeddedFabric(load_scenario(file), 1)
    clock = None
    try:
        controller = start_controller(fabric.describe() | {"profile": "declared"} | told, "--policy", policy)
        clock = ClockStream(controller.agents, fabric.boundary)
        fabric.connect_agents(controller.agents)
        yield Live(fabric, controller)
    finally:
        if clock is not None:
            clock.close()
        fabric.close()
