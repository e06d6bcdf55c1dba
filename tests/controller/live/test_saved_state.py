# SPDX-License-Identifier: Apache-2.0
"""What of a core is stored, and what a core takes up of it, without any store between them."""

from __future__ import annotations

from dataclasses import replace

from control_rig import job

from controller.live.core import Core
from controller.live.earlier_state import restore
from controller.live.messages import AgentUp, FlowOpened, PortsSeen, WorkerJoined, WorkerLeft
from controller.live.saved_state import RESERVED_NUMBERS, SavedState, read_back
from controller.live.settings import CoreSettings
from controller.planner import plan
from controller.planner.registry import POLICIES
from controller.store.interface import Kind, LoadedState
from controller.store.records import encode
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=10**8, fabric_bps=10**8)


def new_core(policy="polyrhythm", topology=TOPOLOGY):
    settings = CoreSettings(topology, POLICIES[policy], 1, verify=False, elephant_bytes=0)
    return Core(settings)


class Stored:
    """Records as a store would hold them."""

    def __init__(self):
        self.records = {kind: {} for kind in Kind}
        self.plans = {}

    def take(self, change):
        for (kind, key), value in change.records.items():
            if value is None:
                self.records[kind].pop(key, None)
            else:
                self.records[kind][key] = encode(value)
        self.plans |= {made.version: made for made in change.plans}

    def loaded(self):
        return LoadedState(self.records, max(self.plans, default=0))

    def keys(self):
        return {(kind, key) for kind, found in self.records.items() for key in found}


def lived(stored):
    """A core that has lived for a while, with everything that it stores."""
    core = new_core()
    saved = SavedState(core, "boot1")
    core.handle(AgentUp("h1", "none"))
    for member in (job("a", "h1", "h3"), job("b", "h2", "h4")):
        for rank, host in enumerate(member.hosts):
            core.handle(WorkerJoined(host, rank, member))
    core.handle(FlowOpened("h1", "a/h1>h3", 51_000, 26))
    core.handle(PortsSeen("leaf1", {4: False}))
    core.take_condition()
    core.adopt(plan(core.plan_input()))
    stored.take(saved.change(core.plan))
    assert not saved.change(core.plan), "nothing is stored twice"
    core.handle(WorkerLeft("h2", 0, "b"))
    stored.take(saved.change(core.plan))
    return core


def test_what_is_stored_is_taken_up():
    stored = Stored()
    before = lived(stored)
    after = new_core()
    earlier = read_back(stored.loaded(), stored.plans[before.plan.version], "boot1")
    restore(after, earlier)
    assert after.registry.jobs == before.registry.jobs
    assert after.plan == before.plan
    assert after.desired == before.desired
    assert len(after.condition.down_links) == 1
    assert after.queue_pairs.of(after.registry.jobs) == before.queue_pairs.of(before.registry.jobs)
    assert after.resumes
    assert not after.wants_plan
    saved = SavedState(after, "boot1", stored.keys(), earlier)
    assert not saved.change(after.plan), "nothing has changed"
    # The worker that had left has left; the other one's departure ends the job.
    after.handle(WorkerLeft("h4", 1, "b"))
    stored.take(saved.change(after.plan))
    assert set(stored.records[Kind.JOB]) == set(stored.records[Kind.WORKERS]) == {"a"}


def test_a_job_that_does_not_fit_any_more_is_left_out_and_removed(caplog):
    stored = Stored()
    before = lived(stored)
    hosts = tuple(h for h in TOPOLOGY.hosts if h.name != "h4")
    smaller = new_core(topology=replace(TOPOLOGY, hosts=hosts))
    earlier = read_back(stored.loaded(), stored.plans[before.plan.version], "boot1")
    restore(smaller, earlier)
    assert [j.name for j in smaller.registry.jobs] == ["a"]
    assert "job b: the fabric has no host named h4" in caplog.text
    # The plan leads to a host that is gone: it is not taken up, but its number is.
    assert smaller.plan.flows == {}
    assert smaller.plan.version == before.plan.version + RESERVED_NUMBERS + 1
    assert smaller.wants_plan
    stored.take(SavedState(smaller, "boot1", stored.keys(), earlier).change(smaller.plan))
    assert set(stored.records[Kind.JOB]) == {"a"}


def test_after_a_reboot_the_slots_count_by_the_new_clock():
    stored = Stored()
    before = lived(stored)
    after = new_core()
    after.now_ns = 5
    restore(after, read_back(stored.loaded(), stored.plans[before.plan.version], "boot2"))
    assert after.plan == replace(before.plan, epoch_ns=5)


def test_another_policy_makes_a_new_plan_and_numbers_go_on():
    stored = Stored()
    before = lived(stored)
    after = new_core("ecmp")
    restore(after, read_back(stored.loaded(), stored.plans[before.plan.version], "boot1"))
    assert after.wants_plan
    assert plan(after.plan_input()).version == before.plan.version + RESERVED_NUMBERS + 1
    # Where no plan is known to be in force, too.
    empty = new_core()
    restore(empty, read_back(LoadedState(last_version=41), None, "boot1"))
    assert plan(empty.plan_input()).version == 42


def test_open_queue_pairs_count_until_the_agent_reports_them_again():
    core = new_core()
    core.handle(AgentUp("h1", "none", workers=frozenset()))
    member = job("a", "h1", "h3")
    for rank, host in enumerate(member.hosts):
        core.handle(WorkerJoined(host, rank, member))
    core.handle(FlowOpened("h1", "a/h1>h3", 51_000, 26))
    known = core.queue_pairs.of(core.registry.jobs)
    core.handle(AgentUp("h1", "none", workers=frozenset({("a", 0)})))
    assert core.queue_pairs.of(core.registry.jobs) == known
    core.handle(AgentUp("h1", "udp", workers=frozenset({("a", 0)})))
    assert core.queue_pairs.of(core.registry.jobs) == {}
