# SPDX-License-Identifier: Apache-2.0
"""The emulated RoCEv2 NIC: one port that sends control packets first, then queue pairs in the order of their
levels, each at its own pace."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from random import Random
from zlib import crc32

from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from controller.wire.senders import DCQCN, canonical_sender, plain_sender, uses_mltcp
from hostagent.clock import EventClock
from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.driver import NicCounters, ReceiveQueue
from hostagent.nic.head import DATA_OPCODES, BadFrameError, Head, StrayFrameError, read_head
from hostagent.nic.mltcp import Mltcp
from hostagent.nic.requester import Requester
from hostagent.nic.responder import Responder
from hostagent.nic.roce import (
    ACKNOWLEDGE,
    BECN,
    CNP,
    HEAD_BYTES,
    OVERHEAD_BYTES,
    PSN_MASK,
    check_pin,
    ip_bytes,
    mac_bytes,
    overhead_bytes,
)

DEFAULT_CNP_DSCP = 48
"""CS6, which is usual for CNPs; until a controller's Welcome gives another."""
DEFAULT_ACK_DSCP = 50
"""Not that of CNPs: an edge switch may drop packets with their DSCP that are not CNPs."""
_CACHED_HEADS = 4096


class EmulatedNic:
    """A NIC with one port. `transmit(frame)` is called as the last bit of a frame leaves.

    Queue pairs are served in the strict order of their levels, and by round robin within a level, as in a
    NIC that trusts DSCP and whose traffic classes are set to strict priority (IEEE 802.1Q, 8.6.8.1;
    `mlnx_qos --trust dscp --tsa strict,...`). Control packets go before all data.

    `rate_bps` counts whole frames without FCS, preamble and gap. Both ends derive queue-pair numbers and
    first packet numbers from the flow's name, which replaces the exchange of a connection manager.
    `bad_frames`: frames with a wrong IPv4 checksum, ICRC or length; `stray_frames`: frames for no connection
    here, those of the other address family among them. `seed` changes the first packet numbers and must be
    the same on every NIC of a fabric. With `chooses_ports` the NIC draws a source port for every flow itself
    (pinning none). With `keeps_dscp` an open queue pair keeps its first DSCP (dscp fixed). With `any_order`
    it takes packets in any order from NICs that do so too. Raises ValueError for an illegal rate or MTU.
    """

    pinning = "emulated"
    dscp = "qp"
    sees_flows = True
    mltcp = True

    def __init__(
        self,
        name: str,
        ip: str,
        mac: str,
        gateway_mac: str,
        rate_bps: int,
        *,
        clock: EventClock,
        transmit: Callable[[bytes], None],
        dcqcn: DcqcnProfile,
        mtu: int = 1024,
        seed: int = 0,
        chooses_ports: bool = False,
        keeps_dscp: bool = False,
        any_order: bool = False,
    ) -> None:
        if rate_bps <= 0 or mtu < 256 or mtu > 4096 or mtu % 4:
            raise ValueError(f"NIC {name}: needs rate_bps > 0 and mtu 256-4096 in steps of 4")
        self.name = name
        if chooses_ports:
            self.pinning = "none"
        if keeps_dscp:
            self.dscp = "fixed"
        self.ip = ip_bytes(ip)
        self.overhead = overhead_bytes(ip)
        self._head_bytes = HEAD_BYTES + self.overhead - OVERHEAD_BYTES
        self.macs = mac_bytes(gateway_mac) + mac_bytes(mac)
        self.rate_bps = rate_bps
        self.clock = clock
        self.profile = dcqcn
        self.mtu = mtu
        self.any_order = any_order
        self.payload = bytes(mtu)
        self.cnp_dscp, self.ack_dscp = DEFAULT_CNP_DSCP, DEFAULT_ACK_DSCP
        self._transmit = transmit
        self._seed = seed
        self._ns_per_byte = 8e9 / rate_bps
        self._requesters: dict[int, Requester] = {}
        self._responders: dict[int, Responder] = {}
        self._known: dict[bytes, Head] = {}
        self._senders: dict[str, tuple[str, Mltcp | None]] = {}
        self._mltcp: dict[str, Mltcp] = {}
        self._increase_timers: dict[str, float] = {}
        self._control: deque[bytes] = deque()
        self._levels: dict[int, int] = {}
        self._rings: list[deque[Requester]] = [deque()]
        self._held: frozenset[int] = frozenset()
        self._busy = False
        self._slot: Requester | None = None
        self._slot_start = 0
        self._token = 0
        self._closed_totals: dict[str, list[int]] = {}
        self.bad_frames = self.stray_frames = 0

    # -- connections

    def open_qp(self, flow: str, dst_ip: str, source_port: int, dscp: int) -> Requester:
        """Open a sending queue pair; see NicDriver."""
        check_pin(flow, source_port, dscp)
        number, psn = self._identity(flow)
        self._refuse_taken(flow, self._requesters.get(number))
        if self.pinning == "none":
            source_port = Random(f"{self._seed}/{flow}/port").randrange(
                ROCE_SOURCE_PORTS.start, ROCE_SOURCE_PORTS.stop
            )
        qp = Requester(self, flow, number, psn, self._peer(flow, dst_ip), source_port=source_port, dscp=dscp)
        self._requesters[number] = qp
        self._known.clear()
        job = flow.partition("/")[0]
        qp.set_sender(*self._senders.get(job, (DCQCN, None)))
        if job in self._increase_timers:
            qp.set_increase_timer(self._increase_timers[job])
        return qp

    def set_sender(self, job: str, sender: str) -> None:
        """Choose the congestion control of a job; see NicDriver. Every job begins with DCQCN.

        With an unchanged choice queue pairs keep what they have learnt. Raises ValueError for an unknown
        sender.
        """
        sender = canonical_sender(sender)
        mltcp = self._mltcp.get(job, Mltcp()) if uses_mltcp(sender) else None
        self._choose_sender(job, plain_sender(sender), mltcp)

    def set_mltcp(self, job: str, settings: Mltcp) -> None:
        """Use these settings while the job's sender is MLTCP, from now on."""
        self._mltcp[job] = settings
        plain, mltcp = self._senders.get(job, (DCQCN, None))
        self._choose_sender(job, plain, settings if mltcp is not None else None)

    def _choose_sender(self, job: str, plain: str, mltcp: Mltcp | None) -> None:
        if (plain, mltcp) == self._senders.get(job, (DCQCN, None)):
            return
        self._senders[job] = plain, mltcp
        for qp in self._requesters.values():
            if qp.flow.partition("/")[0] == job:
                qp.set_sender(plain, mltcp)

    def set_increase_timer(self, job: str, ratio: float) -> None:
        """Give a job's later queue pairs `ratio` of the profile's increase timer. A smaller one is more
        aggressive.
        """
        self._increase_timers[job] = ratio

    def grant(self, qp: Requester, source_port: int, dscp: int) -> tuple[int, int]:
        """The source port and DSCP that an open queue pair gets when it asks for these."""
        return (
            qp.source_port if self.pinning == "none" else source_port,
            qp.dscp if self.dscp == "fixed" else dscp,
        )

    def listen(self, flow: str, src_ip: str, on_receive: Callable[[ReceiveQueue, int], None]) -> Responder:
        """Accept a flow; see NicDriver."""
        number, psn = self._identity(flow)
        earlier = self._responders.get(number)
        if earlier is not None and earlier.flow == flow:
            earlier.close()
        else:
            self._refuse_taken(flow, earlier)
        qp = Responder(self, flow, number, psn, self._peer(flow, src_ip), on_receive=on_receive)
        self._responders[number] = qp
        self._known.clear()
        return qp

    def forget(self, qp: Requester | Responder) -> None:
        """Remove a closed queue pair. Its counters stay in the sums."""
        number = self._identity(qp.flow)[0]
        totals = self._closed_totals.setdefault(qp.flow.partition("/")[0], [0] * 10)
        for index, value in enumerate(_figures(qp)):
            totals[index] += value
        if isinstance(qp, Requester):
            if qp.active:
                qp.active = False
                self._leave(qp)
            if self._requesters.get(number) is qp:
                del self._requesters[number]
        elif self._responders.get(number) is qp:
            del self._responders[number]
        self._known.clear()
        self.kick()

    def set_traffic_classes(self, cnp_dscp: int, ack_dscp: int, level_dscp: Sequence[int]) -> None:
        """The DSCPs (0-63) of CNPs, acknowledgements and levels from now on; see NicDriver. Raises ValueError
        for others.
        """
        for dscp in (cnp_dscp, ack_dscp, *level_dscp):
            if not 0 <= dscp <= 63:
                raise ValueError(f"NIC {self.name}: DSCP {dscp} is outside 0-63")
        self.settle()
        self.cnp_dscp, self.ack_dscp = cnp_dscp, ack_dscp
        self._levels = {dscp: level for level, dscp in enumerate(level_dscp)}
        active = list(chain.from_iterable(self._rings))
        self._rings = [deque() for _ in range(len(level_dscp) + 1)]
        for qp in active:
            self._rings[self._level(qp)].append(qp)
        for responder in self._responders.values():
            responder.mark_control()

    def counters(self, job: str = "") -> NicCounters:
        """Sums over the queue pairs of one job, or of all; closed ones count."""
        sums = [0] * 10
        for name, totals in self._closed_totals.items():
            if job in ("", name):
                sums = [a + b for a, b in zip(sums, totals, strict=True)]
        ends: list[Requester | Responder] = [*self._requesters.values(), *self._responders.values()]
        for qp in ends:
            if job in ("", qp.flow.partition("/")[0]):
                sums = [a + b for a, b in zip(sums, _figures(qp), strict=True)]
        return NicCounters(*sums)

    def _identity(self, flow: str) -> tuple[int, int]:
        digest = crc32(flow.encode())
        number = 2 + digest % (PSN_MASK - 2)
        return number, Random(f"{self._seed}/{flow}").getrandbits(24)

    def _peer(self, flow: str, address: str) -> bytes:
        """The bytes of the address of the other end. Raises ValueError if it is of another family."""
        peer = ip_bytes(address)
        if len(peer) != len(self.ip):
            family = "IPv4" if len(peer) == 4 else "IPv6"
            raise ValueError(
                f"NIC {self.name}: flow {flow}: {address} is an {family} address, this NIC's is not"
            )
        return peer

    def _refuse_taken(self, flow: str, taken: Requester | Responder | None) -> None:
        if taken is not None:
            reason = "is open already" if taken.flow == flow else f"has the queue-pair number of {taken.flow}"
            raise ValueError(f"NIC {self.name}: flow {flow} {reason}; each flow needs its own name")

    def hold(self, dscps: frozenset[int]) -> None:
        """Send no data with these DSCPs until another call leaves them out (priority flow control). A frame
        that is being sent still leaves. Control packets are never held.
        """
        self.settle()
        self._held = dscps
        self.kick()

    # -- receiving

    def receive(self, frame: bytes) -> None:
        """A frame arrived from the link."""
        known = self._known.get(frame[: self._head_bytes])
        if known is None:
            known = self._learn(frame)
            if known is None:
                return
        end = known.end
        body = frame[self._head_bytes : end]
        if crc32(body, known.state) != int.from_bytes(frame[end : end + 4], "little") or len(frame) < end + 4:
            self.bad_frames += 1
            return
        word = int.from_bytes(body[:4], "big")
        if known.responder is not None:
            known.responder.on_data(word, known.size, known.opcode, known.marked, known.flags)
        elif known.requester is not None:
            if known.opcode == CNP:
                known.requester.on_cnp()
            else:
                self.settle()
                known.requester.on_ack(word & PSN_MASK, body[4:8], bool(known.flags & BECN))

    def _learn(self, frame: bytes) -> Head | None:
        """Parse the head of a frame that is not in the cache. None if the frame is damaged or for another
        host.
        """
        try:
            known = read_head(frame, self.macs[6:], self.ip)
        except BadFrameError:
            self.bad_frames += 1
            return None
        except StrayFrameError:
            self.stray_frames += 1
            return None
        if known.opcode in DATA_OPCODES:
            known.responder = self._responders.get(known.number)
            lost = known.responder is None or known.responder.peer_ip != known.src
        else:
            known.requester = self._requesters.get(known.number)
            lost = known.requester is None or known.opcode not in (ACKNOWLEDGE, CNP)
        if lost:
            self.stray_frames += 1
            return None
        if len(self._known) >= _CACHED_HEADS:
            self._known.clear()
        self._known[frame[: self._head_bytes]] = known
        return known

    # -- sending

    def send_control(self, frame: bytes) -> None:
        """Queue an acknowledgement or a CNP; it leaves before all data."""
        self.settle()
        self._control.append(frame)
        self.kick()

    def activate(self, qp: Requester) -> None:
        """`qp` has packets to send: add it to the round robin of its level."""
        qp.active = True
        self._rings[self._level(qp)].append(qp)
        self.kick()

    def new_level(self, qp: Requester) -> None:
        """The DSCP of `qp` has changed: move it to the round robin of its level."""
        ring = self._rings[self._level(qp)]
        if qp.active and qp not in ring:
            self._leave(qp)
            ring.append(qp)

    def _leave(self, qp: Requester) -> None:
        next(ring for ring in self._rings if qp in ring).remove(qp)

    def _level(self, qp: Requester) -> int:
        """The level of a queue pair by its DSCP; the last one for an unknown DSCP."""
        return self._levels.get(qp.dscp, len(self._levels))

    def settle(self) -> None:
        """Build the packet whose transmission has begun by now, before its queue pair changes."""
        qp = self._slot
        if qp is not None and self._slot_start <= self.clock.now:
            self._slot = None
            self._token += 1
            self._serve(qp.next_frame(self._slot_start), self._slot_start)

    def kick(self) -> None:
        """Choose again what is sent next, unless a frame is being sent."""
        self.settle()
        if not self._busy:
            self._token += 1
            self._slot = None
            self._choose()

    def _choose(self) -> None:
        """The port is idle: send a control packet, or the first packet of the highest level that is due, or
        reserve the port.

        A reservation is one event for the wait and the transmission of a paced packet. If something else is
        sent first, `_token` changes, and the event has no effect.
        """
        now = self.clock.now
        if self._control:
            self._serve(self._control.popleft(), now)
            return
        first: Requester | None = None
        for ring in self._rings:
            for _ in range(len(ring)):
                qp = ring[0]
                ring.rotate(-1)
                if not qp.sendable():
                    qp.active = False
                    ring.pop()
                elif self._held and qp.dscp in self._held:
                    continue
                elif qp.next_ns <= now:
                    self._serve(qp.next_frame(now), now)
                    return
                elif first is None or qp.next_ns < first.next_ns:
                    first = qp
        if first is not None:
            self._slot = first
            self._slot_start = start = first.next_ns
            end = start + int(first.next_bytes() * self._ns_per_byte)
            self.clock.call_at(end, self._slot_due, self._token)

    def _serve(self, frame: bytes, start: int) -> None:
        self._busy = True
        self.clock.call_at(start + int(len(frame) * self._ns_per_byte), self._sent, frame)

    def _slot_due(self, token: int) -> None:
        qp = self._slot
        if token == self._token and qp is not None:
            self._slot = None
            self._busy = True
            self._sent(qp.next_frame(self._slot_start))

    def _sent(self, frame: bytes) -> None:
        self._transmit(frame)
        self._busy = False
        self._choose()


def _figures(qp: Requester | Responder) -> tuple[int, ...]:
    """The counters of one queue pair, in the order of NicCounters."""
    if isinstance(qp, Requester):
        sent = (qp.packets, qp.wire_bytes, qp.bytes_acked, qp.retransmits, qp.timeouts, qp.cnps_received)
        return (*sent, 0, 0, 0, 0)
    return (0, 0, 0, 0, 0, 0, qp.packets, qp.bytes, qp.ecn_marks, qp.cnps_sent)
