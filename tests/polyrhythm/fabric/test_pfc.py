# SPDX-License-Identifier: Apache-2.0
"""Priority flow control: its frames, its timers, and NICs and switches that are joined by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from bmv2_programs import ProgramBuilder, assign, const, extract, field, op, std
from host_bench import FRAME, MS, PROFILE, RATE
from hypothesis import given
from hypothesis import strategies as st

from bmv2 import EmbeddedSwitch, load_program
from hostagent.nic.emulated import EmulatedNic
from hostagent.nic.requester import Requester
from polyrhythm.fabric.heap import EventHeap
from polyrhythm.fabric.pfc import (
    PauseSender,
    PauseTimers,
    is_mac_control,
    least_headroom_bytes,
    pause_frame,
    quanta_ns,
    read_pause,
)
from polyrhythm.fabric.pfc_cables import PfcCables, PfcProfile

MAC = bytes.fromhex("02ff00000001")
PACKET = 1024
DATA, OTHER = 24, 32
"""DSCPs of priorities 3 and 4: here the first three bits of a DSCP are its priority."""
TRUNK = 100
"""The port of the cable between two switches."""
QUEUES = {dscp: dscp >> 3 for dscp in range(64)}


PROFILE_OF_PFC = PfcProfile(
    priorities=frozenset({3, 4}),
    xoff_bytes=8 * FRAME,
    xon_bytes=4 * FRAME,
    headroom_bytes=None,
    frame_bytes=FRAME,
    quanta=0xFFFF,
    cable_ns=500,
)
FRAME_NS = FRAME * 8e9 / RATE


def by_address(shift: int) -> str:
    """A program that sends by nine bits of the destination's MAC address, and queues by the DSCP."""
    b = ProgramBuilder()
    b.add_header("eth", {"dst": 48, "src": 48, "type": 16})
    b.add_header("ip", {"version": 8, "tos": 8})
    b.add_state("start", [extract("eth"), extract("ip")])
    b.first["ingress"] = "go"
    port = op("&", op(">>", field("eth", "dst"), const(shift)), const(0x1FF))
    priority = op(">>", field("ip", "tos"), const(5))
    b.do("ingress", "go", [assign(std("egress_spec"), port), assign(std("priority"), priority)])
    return b.json()


def run(heap: EventHeap, until_ns: int) -> None:
    heap.call_at(until_ns, setattr, heap, "stop", True)
    heap.run()


def test_a_frame_has_the_bytes_of_the_standard() -> None:
    """IEEE 802.1Qbb, 36.1.3.2, and 802.3, annex 31D."""
    frame = pause_frame(MAC, {3: 0xFFFF, 0: 1})
    assert frame.hex() == ("0180c200000102ff00000001880801010009000100000000ffff" + "0000" * 4 + "00" * 26)
    assert len(frame) == 60
    assert is_mac_control(frame)
    assert read_pause(frame) == {0: 1, 3: 0xFFFF}


@given(st.dictionaries(st.integers(0, 7), st.integers(0, 0xFFFF)))
def test_frames_are_read_as_they_are_written(quanta: dict[int, int]) -> None:
    assert read_pause(pause_frame(MAC, quanta)) == quanta


def test_other_control_frames_name_no_priority() -> None:
    frame = pause_frame(MAC, {3: 5})
    plain_pause = frame[:14] + b"\x00\x01" + frame[16:]
    for other in (plain_pause, frame[:40], MAC + frame[6:]):
        assert is_mac_control(other)
        assert read_pause(other) == {}


class Timers:
    """The timers of one end of a cable of 25 Mbit/s, for priorities 3 and 4."""

    def __init__(self) -> None:
        self.heap = EventHeap()
        self.masks: list[tuple[int, int]] = []
        self.timers = PauseTimers(
            self.heap, RATE, {3, 4}, lambda mask: self.masks.append((self.heap.now, mask))
        )

    def at(self, time_ns: int, quanta: dict[int, int]) -> None:
        self.heap.call_at(time_ns, self.timers.take, pause_frame(MAC, quanta))


def test_a_pause_ends_by_itself_after_its_quanta() -> None:
    # 100 quanta of 512 bits at 25 Mbit/s.
    assert quanta_ns(100, RATE) == 2_048_000
    one = Timers()
    one.at(1000, {3: 100})
    one.heap.run()
    assert one.masks == [(1000, 0b1000), (2_049_000, 0)]
    assert one.timers.paused_ns(3) == 2_048_000


def test_a_later_frame_sets_the_time_anew_and_zero_ends_it() -> None:
    one = Timers()
    one.at(0, {3: 100, 4: 100})
    one.at(1 * MS, {3: 100})
    one.at(2 * MS, {4: 0})
    one.at(3 * MS, {3: 10})
    one.heap.run()
    ends = 3 * MS + quanta_ns(10, RATE)
    assert one.masks == [(0, 0b11000), (2 * MS, 0b1000), (ends, 0)]
    assert (one.timers.pauses[3], one.timers.pauses[4], one.timers.resumes[4]) == (3, 1, 1)


def test_priorities_without_flow_control_are_never_paused() -> None:
    one = Timers()
    one.at(0, dict.fromkeys(range(8), 9))
    run(one.heap, 1)
    assert one.masks == [(0, 0b11000)]


def test_a_pause_is_repeated_at_half_of_its_time_and_no_longer_than_it_is_wanted() -> None:
    heap = EventHeap()
    sent: list[tuple[int, int]] = []
    sender = PauseSender(
        heap, MAC, 1000, {1: RATE}, lambda port, frame: sent.append((heap.now, read_pause(frame)[3]))
    )
    half = quanta_ns(1000, RATE) // 2
    heap.call_at(0, sender.changed, 1, 3, True)
    heap.call_at(3 * half - 1, sender.changed, 1, 3, False)
    heap.run()
    assert sent == [(0, 1000), (half, 1000), (2 * half, 1000), (3 * half - 1, 0)]


class Fabric:
    """NICs h1, h2, ... at the ports of one switch, which sends by the address and queues by the DSCP.

    `profile` None: a switch without flow control, whose queues hold 32 packets. Hosts from `second` on are
    behind a second switch, which the first one reaches by one cable.
    """

    def __init__(
        self, hosts: int, profile: PfcProfile | None, *, any_order: bool = False, second: int = 99
    ) -> None:
        self.heap = EventHeap()
        self.cables = None if profile is None else PfcCables(self.heap, profile, QUEUES)
        self._second = second
        near, far = range(1, min(hosts + 1, second)), range(second, hosts + 1)
        self.switches = [self._switch("s1", [*near, TRUNK])]
        if far:
            self.switches.append(self._switch("s2", [*far, TRUNK]))
            for one, two in (self.switches, self.switches[::-1]):
                self._add_port(one, TRUNK, self._into(two, TRUNK))
        self.nics: dict[int, EmulatedNic] = {}
        for host in range(1, hosts + 1):
            switch = self.switches[host >= second]
            nic = self.nics[host] = EmulatedNic(
                f"h{host}", self.ip(host), f"02:00:00:00:00:{host:02x}", "02:00:00:00:00:00", RATE,
                clock=self.heap, transmit=partial(self._leave, self._into(switch, host)),
                dcqcn=PROFILE, any_order=any_order,
            )  # fmt: skip
            # Acknowledgements and CNPs have priorities that are not lossless.
            nic.set_traffic_classes(48, 56, [OTHER, DATA])
            deliver = partial(self._arrive, nic)
            if self.cables is not None:
                deliver = self.cables.to_nic(f"h{host}", RATE, nic.hold, deliver)
            self._add_port(switch, host, deliver)
        for switch, shift in zip(self.switches, (0, 16), strict=False):
            switch.load(load_program(by_address(shift)))

    @staticmethod
    def _add_port(switch: EmbeddedSwitch, port: int, transmit: Callable[[bytes], None]) -> None:
        switch.add_port(port, rate_bps=RATE, transmit=transmit, queue_packets=32)

    @staticmethod
    def ip(host: int) -> str:
        return f"10.0.0.{host}"

    def _switch(self, name: str, ports: list[int]) -> EmbeddedSwitch:
        if self.cables is None:
            return EmbeddedSwitch(name, self.heap)
        return self.cables.switch(name, MAC, dict.fromkeys(ports, RATE))

    def _into(self, switch: EmbeddedSwitch, port: int) -> Callable[[bytes], None]:
        if self.cables is None:
            return partial(switch.receive, port)
        return self.cables.to_switch(switch.name, port, RATE)

    def _leave(self, cable: Callable[[bytes], None], frame: bytes) -> None:
        """Write the port of each switch into the Ethernet header, instead of tables."""
        dst = frame[33]
        first, second = (dst, TRUNK) if dst < self._second else (TRUNK, dst)
        cable(bytes((0, 0, 0, second, 0, first)) + frame[6:])

    @staticmethod
    def _arrive(nic: EmulatedNic, frame: bytes) -> None:
        nic.receive(nic.macs[6:] + frame[6:])

    def flow(self, src: int, dst: int, packets: int, dscp: int = DATA) -> tuple[Requester, list[int]]:
        """Send so many packets. The list gets the time at which all have been acknowledged."""
        name = f"j/{src}-{dst}-{dscp}"
        done: list[int] = []
        self.nics[dst].listen(name, self.ip(src), lambda queue, size: None)
        qp = self.nics[src].open_qp(name, self.ip(dst), 0xC123, dscp)
        qp.post(packets * PACKET, lambda: done.append(self.heap.now))
        return qp, done

    def lost(self) -> int:
        return sum(q.drops for s in self.switches for p in s.ports.values() for q in p.queues)

    def rows(self, node: str, priority: int) -> list[dict[str, Any]]:
        assert self.cables is not None
        rows = self.cables.report()["ports"]
        return [row for row in rows if (row["node"], row["priority"]) == (node, priority)]


@pytest.mark.parametrize("any_order", [False, True], ids=["go-back-N", "selective repeat"])
def test_an_incast_loses_packets_without_flow_control_and_none_with_it(any_order: bool) -> None:
    lost, again, ends = {}, {}, {}
    for profile in (None, PROFILE_OF_PFC):
        fabric = Fabric(4, profile, any_order=any_order)
        flows = [fabric.flow(src, 4, 150) for src in (1, 2, 3)]
        run(fabric.heap, 2_000 * MS)
        lost[profile] = fabric.lost()
        again[profile] = sum(qp.retransmits for qp, _ in flows)
        ends[profile] = max(end for _, done in flows for end in done)
        assert all(len(done) == 1 for _, done in flows)
    assert lost[None] > 0
    assert again[None] > 0
    assert (lost[PROFILE_OF_PFC], again[PROFILE_OF_PFC]) == (0, 0)
    # The receiver's cable is never idle: 450 frames, and little more.
    assert ends[PROFILE_OF_PFC] < 460 * FRAME_NS < ends[None]


def test_the_same_run_gives_the_same_counters() -> None:
    reports = []
    for _ in range(2):
        fabric = Fabric(4, PROFILE_OF_PFC)
        for src in (1, 2, 3):
            fabric.flow(src, 4, 60)
        run(fabric.heap, 500 * MS)
        assert fabric.cables is not None
        reports.append(fabric.cables.report())
    assert reports[0] == reports[1]
    report = reports[0]
    assert report["packets_lost"] == report["headroom_drops"] == 0
    (at_switch, *_), (at_nic,) = (
        [row for row in report["ports"] if (row["node"], row["port"]) == end]
        for end in (("s1", 1), ("h1", 0))
    )
    assert at_switch["pauses_sent"] == at_nic["pauses_received"] > 0
    assert at_switch["resumes_sent"] == at_nic["resumes_received"] > 0
    assert at_nic["paused_ms"] > 0
    assert report["pause_frames"] == sum(row["pauses_sent"] for row in report["ports"])


@pytest.mark.parametrize("cable_ns", [0, 500, 3 * MS])
def test_the_least_headroom_is_enough_and_none_is_not(cable_ns: int) -> None:
    """The port that the packets leave by is paused by its own neighbour, so nothing leaves meanwhile."""
    least = least_headroom_bytes(RATE, cable_ns, FRAME)
    peaks = {}
    for headroom in (None, 0):
        fabric = Fabric(2, replace(PROFILE_OF_PFC, cable_ns=cable_ns, headroom_bytes=headroom))
        assert fabric.cables is not None
        fabric.cables.to_switch("s1", 2, RATE)(pause_frame(MAC, {3: 0xFFFF}))
        fabric.flow(1, 2, 150)
        run(fabric.heap, 50 * MS)
        report = fabric.cables.report()
        assert (report["headroom_drops"] > 0) == (headroom == 0)
        assert report["packets_lost"] == report["headroom_drops"]
        peaks[headroom] = max(row["peak_bytes"] for row in report["ports"])
    # What is on the cable in both directions arrives after the decision, and a frame at each end.
    assert least - 3 * FRAME < peaks[None] - PROFILE_OF_PFC.xoff_bytes <= least


def test_a_paused_priority_does_not_pause_another() -> None:
    fabric = Fabric(5, PROFILE_OF_PFC)
    for src in (1, 2, 3):
        fabric.flow(src, 4, 300)
    run(fabric.heap, 30 * MS)
    (paused,) = fabric.rows("h1", 3)
    assert paused["pauses_received"] > 0
    _, done = fabric.flow(1, 5, 60, OTHER)
    run(fabric.heap, 100 * MS)
    # As fast as the cable: 60 frames, the one before them, two hops and an acknowledgement.
    assert done[0] - 30 * MS < 64 * FRAME_NS
    (later,) = fabric.rows("h1", 3)
    assert later["paused_ms"] > paused["paused_ms"]
    assert not fabric.rows("h1", 4)


def test_a_flow_to_an_idle_port_is_the_victim_of_a_pause() -> None:
    """Head-of-line blocking: a pause names a priority and not a flow (Zhu et al., SIGCOMM 2015, section 2.2)."""
    took = {}
    for profile in (None, PROFILE_OF_PFC):
        fabric = Fabric(7, profile)
        for src in (1, 2, 3, 4, 5):
            fabric.flow(src, 6, 300)
        _, done = fabric.flow(1, 7, 60)
        run(fabric.heap, 4_000 * MS)
        (took[profile],) = done
    # Alone it would take 60 frames; with one other flow on its NIC, twice as many.
    assert took[None] < 2.2 * 60 * FRAME_NS
    # Its NIC sends a fifth of what fits the congested port, and this flow half of the packets.
    assert took[PROFILE_OF_PFC] > 4 * 60 * FRAME_NS


def test_a_pause_travels_from_switch_to_switch() -> None:
    """Two cables feed one at the second switch, so the first switch fills too, and pauses its own senders."""
    for profile in (None, PROFILE_OF_PFC):
        fabric = Fabric(6, profile, second=5)
        flows = [fabric.flow(src, 5, 100) for src in (1, 2, 6)]
        run(fabric.heap, 3_000 * MS)
        assert all(len(done) == 1 for _, done in flows)
        assert (fabric.lost() > 0) == (profile is None)
    (trunk,) = (row for row in fabric.rows("s1", 3) if row["port"] == TRUNK)
    assert trunk["pauses_received"] > 0
    (sender,) = fabric.rows("h1", 3)
    assert sender["pauses_received"] > 0


def test_a_cut_cable_forgets_its_pauses_and_a_repaired_one_hears_them_again() -> None:
    fabric = Fabric(4, PROFILE_OF_PFC)
    for src in (1, 2, 3):
        fabric.flow(src, 4, 300)
    run(fabric.heap, 20 * MS)
    cables, switch = fabric.cables, fabric.switches[0]
    assert cables is not None
    while not switch.buffer.held[1, 3].paused or not fabric.nics[1]._held:
        run(fabric.heap, fabric.heap.now + 10_000)
    before = fabric.rows("h1", 3)[0]["pauses_received"]
    switch.set_port_up(1, False)
    cables.port_changed("s1", 1, False)
    cables.nic_down("h1")
    assert fabric.nics[1]._held == frozenset()
    switch.set_port_up(1, True)
    cables.port_changed("s1", 1, True)
    run(fabric.heap, fabric.heap.now + round(2 * FRAME_NS))
    assert fabric.rows("h1", 3)[0]["pauses_received"] == before + 1
    run(fabric.heap, 3_000 * MS)
    # What was sent into the cut cable is sent again; no buffer lost anything.
    assert fabric.lost() == 0
    assert all(not held.bytes and not held.paused for held in switch.buffer.held.values())
