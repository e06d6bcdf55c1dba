# SPDX-License-Identifier: Apache-2.0
"""What keeps the controller quick to answer: its heap, and its place before the planning process."""

import asyncio
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from control_rig import RATE_BPS

from controller.live.core import Core
from controller.live.settings import CoreSettings
from controller.planner import POLICIES
from controller.process.clock import HostClock
from controller.process.latency import FULL_AT_LATEST_S, FULL_EVERY_S, QUIET_S, GarbageCollection
from controller.process.loop_options import LoopOptions
from controller.process.view_publisher import ViewPublisher
from topo.generate import leaf_spine

ROOT = Path(__file__).parents[3]


class Ring:
    """Something that only a collection finds when it is gone."""

    def __init__(self):
        self.own = self


@pytest.fixture
def heap():
    kept = GarbageCollection()
    yield kept
    kept.close()
    gc.collect()


def test_young_cycles_are_found_and_old_ones_when_it_is_time(heap):
    ring = Ring()
    young = weakref.ref(ring)
    del ring
    gc.collect(0)
    assert young() is None
    ring = Ring()
    old = weakref.ref(ring)
    gc.collect(1)
    assert gc.get_freeze_count() > 0
    assert not any(o is ring for o in gc.get_objects()), "what survives is looked at no more"
    del ring
    gc.collect()
    assert old() is not None
    began = heap._full_s
    assert not heap.collect_if_due(began + FULL_EVERY_S - 1, 0.0)
    soon = began + FULL_EVERY_S + 1
    assert not heap.collect_if_due(soon, soon - QUIET_S / 2)
    assert old() is not None
    assert heap.collect_if_due(soon, soon - QUIET_S)
    assert old() is None
    assert not heap.collect_if_due(soon + 1, 0.0)
    late = soon + FULL_AT_LATEST_S + 1
    assert heap.collect_if_due(late, late)


def test_the_old_generation_stays_empty(heap):
    kept = [[n] for n in range(200_000)]
    assert gc.get_count()[2] <= gc.get_threshold()[2] + 1
    assert len(gc.get_objects(generation=2)) < 20_000
    assert len(kept) == 200_000


SCRIPT = """
import os, sys
from controller.process.latency import NICENESS, lower_priority
from controller.wire.time_slices import short_time_slices
def slice_ns():
    for line in open("/proc/thread-self/sched"):
        if line.startswith("se.slice"):
            return int(line.split(":")[1])
before = slice_ns()
taken = short_time_slices()
if len(sys.argv) > 1:
    lower_priority(NICENESS)
print(taken, before, slice_ns(), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))
"""


@pytest.mark.skipif(not Path("/proc/thread-self/sched").exists(), reason="the kernel tells no slices")
def test_the_loop_has_short_slices_and_the_worker_is_behind():
    def said(*arguments):
        command = [sys.executable, "-c", SCRIPT, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        return done.stdout.split()

    taken, before, after, policy, nice = said()
    assert taken == "True"
    assert (int(policy), int(nice)) == (os.SCHED_OTHER, os.getpriority(os.PRIO_PROCESS, 0))
    if after == before:
        pytest.skip("this Linux gives no slices of one's own choice")
    assert int(after) == 2_000_000
    _, before, after, policy, nice = said("behind")
    assert (after, int(policy)) == (before, os.SCHED_BATCH)
    assert int(nice) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)


class Switches:
    """No switches at all."""

    def __init__(self):
        self.clients = {}

    def not_ready(self):
        return {}


def test_views_are_made_for_those_who_look():
    core = Core(
        CoreSettings(
            leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS), POLICIES["ecmp"], 1, False, 10_000
        )
    )

    async def look():
        options = LoopOptions("s", 1, poll_always=False, read_back_ns=1)
        shown = ViewPublisher(core, HostClock(), lambda notice: None, options, None)
        shown.connect(Switches())
        assert shown.board.snapshot() is None
        core.now_ns = 5
        shown.now()
        core.now_ns = 6
        # Nobody looked: it is made when asked for, as things stand then, and once.
        first = shown.board.snapshot()
        assert first.time_ns == 6
        assert shown.board.snapshot() is first
        views = shown.board.subscribe()
        assert await anext(views) is first
        waiting = asyncio.ensure_future(anext(views))
        await asyncio.sleep(0)
        core.now_ns = 7
        shown.soon()
        assert (await waiting).time_ns == 7
        await views.aclose()
        assert shown.board.watchers == 0

    asyncio.run(look())
