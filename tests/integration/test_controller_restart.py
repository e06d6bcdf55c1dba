# SPDX-License-Identifier: Apache-2.0
"""kill -9 and a restart: no acknowledged job is lost, and no correct entry is disturbed."""

from __future__ import annotations

import contextlib
import queue
import random
import re
import signal
import threading
import time

import grpc
import pytest
from control_rig import PATIENCE_S, Agent, eventually, job, join_message
from finsy.proto import p4r_grpc

from controller.southbound.artefacts import load_artefacts
from controller.southbound.codec import Codec
from controller.southbound.pinned_flows import FLOW_TABLES
from controller.wire import agent_pb2 as wire

CODEC = Codec(load_artefacts())
SWITCHES = ("leaf1", "leaf2", "spine1", "spine2")


def entries(fabric):
    """What all switches hold, read by a stranger: (switch, key) -> entry."""
    held = {}
    for switch in fabric.topology.switches:
        with grpc.insecure_channel(fabric.servers[switch.name].address) as channel:
            for reply in p4r_grpc.P4RuntimeStub(channel).Read(CODEC.read_tables(switch.device_id)):
                for entity in (e for e in reply.entities if e.HasField("table_entry")):
                    entry = CODEC.decode(entity.table_entry)
                    held[switch.name, entry.key] = entry
    return held


def flow_entries(fabric):
    return {at: entry for at, entry in entries(fabric).items() if entry.table in FLOW_TABLES}


class Hosts:
    """A session for each host whose jobs join; its NIC chooses the port of every flow itself, so that most
    flows need entries in switches.
    """

    def __init__(self, controller, connect):
        self.controller, self.connect, self.agents = controller, connect, {}

    def join(self, member, port):
        """The agents of a job that has joined."""
        for rank, host in enumerate(member.hosts):
            if host not in self.agents:
                self.agents[host] = self.connect(self.controller.agents, host, pinning="none")
                self.agents[host].next("welcome")
            agent = self.agents[host]
            agent.send(join_message(member, rank))
            for flow in member.flows:
                if flow.src == host:
                    opened = wire.FlowOpened(flow=flow.name, source_port=port, dscp=26)
                    agent.send(wire.AgentMessage(flow_opened=opened))
        return [self.agents[host] for host in member.hosts]


def pinned(fabric, controller, connect):
    """Two jobs whose flows are pinned by entries: the plan's version, and the entries."""
    hosts = Hosts(controller, connect)
    for name, where, port in (("a", ("h1", "h3"), 51_111), ("b", ("h2", "h4"), 52_222)):
        for agent in hosts.join(job(name, *where), port):
            agent.next("schedule")
    eventually(lambda: flow_entries(fabric), "entries for single flows")

    def verified():
        version = controller.api("plan")["version"]
        return version if controller.says(f"plan {version}: INT probes") else None

    return eventually(verified, "the plan's paths are verified"), flow_entries(fabric)


def at_rest(controller):
    """Wait until no plan follows: the final one comes some time after the first one for a new job."""
    seen = []

    def same():
        seen.append(controller.api("plan")["version"])
        time.sleep(0.5)
        return len(seen) > 3 and len(set(seen[-4:])) == 1

    eventually(same, "no further plan")


def kill(controller):
    controller.process.send_signal(signal.SIGKILL)
    controller.process.wait(PATIENCE_S)


def in_service(controller):
    eventually(
        lambda: all(controller.says(f"switch {name} is in service") for name in SWITCHES), "all in service"
    )


@pytest.mark.slow
def test_a_killed_controller_comes_back_with_its_jobs_and_its_plan(
    fabric, start_controller, connect, tmp_path
):
    state = f"--state={tmp_path / 'state'}"
    first = start_controller(fabric.description(profile="declared"), state)
    _, pins = pinned(fabric, first, connect)
    at_rest(first)
    kill(first)
    before = entries(fabric)
    said = re.findall(r"plan (\d+) of policy polyrhythm is in force", first.log.read_text())
    version = int(said[-1])

    second = start_controller(fabric.description(profile="declared"), state)
    in_service(second)
    assert [j["name"] for j in second.api("jobs")["jobs"]] == ["a", "b"]
    assert second.api("plan")["version"] == version
    assert entries(fabric) == before
    assert len(pins) > 0
    said = second.log.read_text()
    assert said.count("; 0 updates lead to the desired state") == len(SWITCHES)
    assert f"plan {version} of policy polyrhythm is still in force" in said

    # Agents are answered by that plan at once, and a further job gets the next number.
    hosts = Hosts(second, connect)
    for agent in hosts.join(job("a", "h1", "h3"), 51_111):
        assert agent.next("schedule").job == "a"
        assert agent.next("accepted").job == "a"
    for agent in hosts.join(job("c", "h2", "h3"), 53_333):
        assert agent.next("accepted").job == "c"
    eventually(lambda: "c" in {j["job"] for j in second.api("plan")["jobs"]}, "c is planned")
    assert second.api("plan")["version"] > version


@pytest.mark.slow
def test_without_a_store_found_entries_stay_until_the_grace_is_over(fabric, start_controller, connect):
    first = start_controller(fabric.description())
    pinned(fabric, first, connect)
    at_rest(first)
    kill(first)
    pins = flow_entries(fabric)
    second = start_controller(fabric.description(restart_grace_ms=1_000_000))
    in_service(second)
    assert flow_entries(fabric) == pins
    kill(second)
    third = start_controller(fabric.description(restart_grace_ms=500))
    eventually(lambda: third.says("all agents have reported since the start, or their time is over"))
    eventually(lambda: not flow_entries(fabric), "entries that nothing explains are removed")


@pytest.mark.slow
def test_a_worker_that_is_not_announced_again_leaves(fabric, start_controller, connect, tmp_path):
    state = f"--state={tmp_path / 'state'}"
    first = start_controller(fabric.description(), state)
    for agent in Hosts(first, connect).join(job("a", "h1", "h3"), 51_111):
        agent.next("accepted")
    kill(first)
    second = start_controller(fabric.description(restart_grace_ms=500), state)
    eventually(lambda: second.says("job a has left"), "a ghost leaves")
    assert second.says("job a: the worker of rank 0 has left: the agent of host h1 has not come back")
    eventually(lambda: second.api("jobs")["jobs"] == [])
    kill(second)
    third = start_controller(fabric.description(), state)
    assert eventually(lambda: third.api("jobs"))["jobs"] == []


class Trainers(threading.Thread):
    """Jobs that join and leave through sessions of all hosts, until the controller dies; what was
    acknowledged.
    """

    def __init__(self, address, topology, seed):
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.agents = {h.name: Agent(address, h.name, h.ip) for h in topology.hosts}
        self.topology, self.seed = topology, seed
        self.accepted, self.leaving = {}, set()
        self.ended = threading.Event()

    def run(self):
        for number in range(10_000):
            if self.ended.is_set():
                return
            hosts = self.random.sample(sorted(self.agents), 2)
            member = job(f"job{self.seed}-{number}", *hosts)
            for rank, host in enumerate(member.hosts):
                self.agents[host].send(join_message(member, rank))
            if number % 3 == 2:
                gone = f"job{self.seed}-{number - 2}"
                self.leaving.add(gone)
                for rank, host in self.accepted.get(gone, {}).items():
                    self.agents[host].send(wire.AgentMessage(job_leave=wire.JobLeave(job=gone, rank=rank)))
            self.collect()
            time.sleep(0.05)

    def collect(self):
        for host, agent in self.agents.items():
            with contextlib.suppress(queue.Empty):
                while (message := agent.inbox.get_nowait()) is not None:
                    if message.WhichOneof("body") == "accepted":
                        self.accepted.setdefault(message.accepted.job, {})[message.accepted.rank] = host

    def stop(self):
        self.ended.set()
        self.join(PATIENCE_S)
        self.collect()
        for agent in self.agents.values():
            agent.close()

    def certain(self):
        """Jobs of which every worker was acknowledged, and that nobody has asked to leave."""
        return {name for name, ranks in self.accepted.items() if len(ranks) == 2} - self.leaving


def plan_numbers(controller):
    """The numbers of the plans that a controller has made."""
    said = re.findall(r"plan (\d+) of policy \S+ is in force: ", controller.log.read_text())
    return {int(number) for number in said}


@pytest.mark.slow
def test_kills_at_random_instants_lose_no_acknowledged_job(fabric, start_controller, tmp_path):
    state = f"--state={tmp_path / 'state'}"
    rng = random.Random(17)
    certain, before, numbers = set(), {}, set()
    for kills in range(12):
        controller = start_controller(fabric.description(profile="declared", verify=False), state)
        present = {j["name"] for j in eventually(lambda c=controller: c.api("jobs"))["jobs"]}
        assert certain <= present, f"after {kills} kills"
        in_service(controller)
        assert before.items() <= entries(fabric).items()
        trainers = Trainers(controller.agents, fabric.topology, kills)
        trainers.start()
        time.sleep(rng.uniform(0.0, 2.0))
        if kills == 0:
            eventually(lambda c=controller: plan_numbers(c), "a plan is made")
        kill(controller)
        # Plans are shown before they are stored. No number stands for two plans.
        given = plan_numbers(controller)
        assert given.isdisjoint(numbers)
        numbers |= given
        trainers.stop()
        # Earlier jobs may have left: their agents are back, and do not announce them.
        certain = trainers.certain()
        before = {at: e for at, e in entries(fabric).items() if e.table not in FLOW_TABLES}
        assert len(before) > 100
    assert certain, "jobs were acknowledged"
    assert numbers, "plans were made"
