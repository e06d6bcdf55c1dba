# SPDX-License-Identifier: Apache-2.0
"""DCQCN's reaction point (Zhu et al., SIGCOMM 2015, section 3), and its parameters for an emulated link."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from hostagent.nic.congestion import Acknowledgement

GROWTH = 0.25
"""Packets per round trip. Chosen, between 1/16 (8, 16 and 40 flows on a port that holds 256 packets fill
100, 97 and 82 % of it with new data, but one loss slows a job for seconds) and 1 as in RFC 5681 (94, 87 and
75 %, and eight flows get unequal shares). Without any cut, eight flows fill 62 %."""
LEAST_WINDOW = 2.0
"""Packets in flight, however many are lost (RFC 5681, equation 4)."""


@dataclass(frozen=True, slots=True)
class DcqcnProfile:
    """Parameters of one NIC; times in ns, rates in bit/s on the wire, counters in bytes or packets.

    Of the notification point: `cnp_interval_ns`. Of the reaction point: `g`, `initial_alpha`,
    `alpha_timer_ns`, `increase_timer_ns`, `byte_counter`, `fast_recovery_steps`, `additive_bps`, `hyper_bps`
    and `min_rate_bps`. Of the transport: `retransmit_ns` is the first time-out and `ack_timeout_ns` the
    longest (each time-out doubles it), `repin_ns` how long a new source port or DSCP waits for packets in
    flight of which none is acknowledged, `idle_ns` the idle time after which a window-based sender restarts,
    `window_packets` the bound on packets in flight, `mltcp_packets` the least and the greatest bound for
    MLTCP senders, `ack_every` the number of packets between two that request an acknowledgement.
    """

    cnp_interval_ns: int
    g: float
    initial_alpha: float
    alpha_timer_ns: int
    increase_timer_ns: int
    byte_counter: int
    fast_recovery_steps: int
    additive_bps: float
    hyper_bps: float
    min_rate_bps: float
    retransmit_ns: int
    ack_timeout_ns: int
    repin_ns: int
    idle_ns: int
    window_packets: int
    mltcp_packets: tuple[int, int]
    ack_every: int

    @staticmethod
    def scaled(
        rate_bps: int, packet_bytes: int, slowest_bps: int | None = None, queue_packets: int = 256
    ) -> DcqcnProfile:
        """The profile for a link of `rate_bps` with frames of `packet_bytes`, in a fabric whose queues hold
        `queue_packets`.

        The parameters of a real NIC are times and rates, the same whatever its line rate is (R_AI 40 Mbit/s,
        a timer of 300 us). So all NICs of a fabric take one profile: that of their fastest, `rate_bps`, and
        of their slowest, `slowest_bps` (None: the same), for the least rate and the time-outs, which have to
        outlast a full queue of the slowest link. If each NIC took the profile of its own rate, flows of slow
        NICs would recover later than those of fast ones and get less of a link that they share.

        The real thing, at 50 Gbit/s: CNP interval 50 us, alpha timer 55 us, increase timer 125-300 us,
        byte counter 10 MB, R_AI 40 Mbit/s, g = 1/256 to 1/16, five steps of fast recovery; a phase of
        120 ms holds 2,400 CNP intervals, and DCQCN's search for a fair rate is a small part of it. On
        the emulated link (25 Mbit/s, 1,082-byte frames: 1/2000 of the rate, 0.346 ms a frame, round
        trips of 2 ms, 10 with queues) the same phase holds some 350 frames. Dividing the rate alone
        would leave fewer than one frame per CNP interval; multiplying every time by 2,000 would make
        the search longer than the phase, and a rate found from a handful of random CNPs so unfair that
        jobs drift apart by chance. So times are counted in frame times P of the emulated link and
        shortened, and each step made smaller or more frequent, until the search is again a small part
        of a phase, two flows fill a shared link to over 95 %, and their shares differ by a few per
        cent: CNP interval 4 P (1.4 ms), alpha timer 5 P, increase timer 2 P (the real one is slower
        than the CNPs; here it has to find its rate in dozens of steps instead of hundreds), byte counter
        96 frames, one step of fast recovery, R_AI 1/25 and R_HAI 1/10 of the line, least rate 1/50,
        g = 1/16 as in the real thing, first alpha 1/2 instead of 1.

        The transport: acknowledgement every 16 frames; first time-out 320 P where a queue holds 256 frames
        (that queue drained, and a window besides: a time-out while all packets only wait repeats them for
        nothing), longest 10,240 P (3.5 s; NCCL asks for 4.096 us x 2^18 to 2^20, which is 1 to 4 s). A new
        level waits 160 P for packets on the old one, which may be starved. At most 40
        frames are in flight, for without PFC and without a bound (Mittal et al., SIGCOMM 2018, "BDP-FC") a
        sender whose queue is starved by a higher priority gets no notification and would pour the whole
        message into a full buffer. With an acknowledgement every 16 frames, a round trip
        without queues needs 25.

        MLTCP: two senders that both fill their windows share a link by these, whatever their rates would be,
        so F has to move the window too: 32 F frames, from 8 to 64. Of two flows that meet for long, one with
        none of its bytes sent gets 0.11 of the link beside one with all of them, as by the thesis' F, and
        0.19 beside one without MLTCP. A frame and its acknowledgement need some 6 frames, so a small window
        is enough if acknowledgements come more often: the smaller it is, the more of them are requested, and
        a phase alone takes at most one or two frames longer than without MLTCP.
        """
        frame_ns = 8e9 * packet_bytes / rate_bps
        slowest_bps = slowest_bps or rate_bps
        slowest_frame_ns = 8e9 * packet_bytes / slowest_bps
        retransmit_ns = int((queue_packets + 64) * slowest_frame_ns)
        return DcqcnProfile(
            cnp_interval_ns=int(4 * frame_ns),
            g=1 / 16,
            initial_alpha=0.5,
            alpha_timer_ns=int(5 * frame_ns),
            increase_timer_ns=int(2 * frame_ns),
            byte_counter=96 * packet_bytes,
            fast_recovery_steps=1,
            additive_bps=rate_bps / 25,
            hyper_bps=rate_bps / 10,
            min_rate_bps=slowest_bps / 50,
            retransmit_ns=retransmit_ns,
            ack_timeout_ns=max(retransmit_ns, int(10_240 * slowest_frame_ns)),
            repin_ns=int(160 * slowest_frame_ns),
            idle_ns=int(160 * slowest_frame_ns),
            window_packets=40,
            mltcp_packets=(8, 64),
            ack_every=16,
        )


class ReactionPoint:
    """The rate of one queue pair.

    `limited` is False at line rate. Then nothing is computed per packet, as a NIC releases the rate limiter
    of a flow that has recovered; the next CNP takes a new one with the first alpha. Timers are evaluated when
    the rate is needed, so they cost nothing in idle times. A queue pair that computes for long enough starts
    its next phase at line rate. `weight` scales the steps of the increase, of the target rate and towards it
    (MLTCP); 1 is plain DCQCN. The receiver's marks come back as CNPs.

    DCQCN itself does not react to losses. In a fabric without PFC a NIC bounds what it has in flight (mlx5:
    roce_tx_window). Here a loss halves that bound, once for all losses of a window, and it grows by GROWTH
    packets in each round trip (NVIDIA publishes no steps). Otherwise the full windows of seven flows on one
    port overflow a queue of 256 packets all the time.
    """

    __slots__ = (
        "_after_loss",
        "_alpha_base",
        "_bound",
        "_byte_stage",
        "_bytes",
        "_increase_at",
        "_line",
        "_profile",
        "_recover",
        "_target",
        "_timer_stage",
        "ack_every",
        "alpha",
        "limited",
        "rate",
        "weight",
        "window",
    )

    echoes = False

    def __init__(self, line_bps: int, profile: DcqcnProfile) -> None:
        self._line = float(line_bps)
        self._profile = profile
        self.rate = self._line
        self.limited = False
        self.weight = 1.0
        self.window = self._bound = profile.window_packets
        self.ack_every = profile.ack_every
        self._after_loss = inf
        self._recover = -1
        self.alpha = profile.initial_alpha
        self._target = self._line
        self._alpha_base = 0
        self._increase_at = 0
        self._bytes = 0
        self._timer_stage = 0
        self._byte_stage = 0

    def weigh(self, weight: float, height: float | None) -> None:
        """Scale the increase by `weight`, and move the window between the profile's two bounds for MLTCP
        (thesis, equation 1.2).

        A small window asks for acknowledgements more often. Otherwise a sender that is alone would stop after
        each window until its last packet is acknowledged.
        """
        self.weight = weight
        self.ack_every = self._profile.ack_every
        if height is None:
            self._bound = self._profile.window_packets
        else:
            least, most = self._profile.mltcp_packets
            self._bound = least + round(height * (most - least))
            self.ack_every = max(1, self.ack_every * self._bound // most)
        self.window = int(min(self._bound, self._after_loss))

    def restart(self, idle_ns: int, *, iteration: bool) -> None:
        """Nothing: the timers count idle time too."""

    def on_ack(self, ack: Acknowledgement) -> None:
        """Widen the window that a loss has made smaller."""
        if self._after_loss < inf:
            self._after_loss += GROWTH * ack.acked / self._after_loss
            if self._after_loss >= self._bound:
                self._after_loss = inf
            self.window = int(min(self._bound, self._after_loss))

    def on_loss(self, now: int, una: int, end: int, flight: int) -> None:
        """Halve the window, once for all losses of a window."""
        if una >= self._recover:
            self._recover = end
            self._after_loss = max(self.window / 2, LEAST_WINDOW)
            self.window = int(self._after_loss)

    def on_timeout(self, now: int, una: int, end: int, flight: int) -> None:
        """Nothing: more often than not the packets only wait in a starved queue. Where they were lost,
        `on_loss` follows once that is known."""

    def on_cnp(self, now: int) -> None:
        """A congestion notification has arrived: cut the rate, raise alpha, restart timers and counters."""
        profile = self._profile
        if self.limited:
            self.advance(now)
        if not self.limited:
            self.alpha = profile.initial_alpha
            self._target = self._line
            self.limited = True
        else:
            quiet = (now - self._alpha_base) // profile.alpha_timer_ns
            self.alpha *= (1.0 - profile.g) ** quiet
        self._alpha_base = now
        self._target = self.rate
        self.rate = max(profile.min_rate_bps, self.rate * (1.0 - self.alpha / 2.0))
        self.alpha = (1.0 - profile.g) * self.alpha + profile.g
        self._increase_at = now + profile.increase_timer_ns
        self._bytes = 0
        self._timer_stage = 0
        self._byte_stage = 0

    def advance(self, now: int, sent_bytes: int = 0) -> None:
        """Apply the timers until `now` (ns) and `sent_bytes` more sent bytes. Call it only while
        `limited`."""
        profile = self._profile
        while self._increase_at <= now and self.limited:
            self._increase_at += profile.increase_timer_ns
            self._timer_stage += 1
            self._increase()
        self._bytes += sent_bytes
        if self._bytes >= profile.byte_counter and self.limited:
            self._bytes -= profile.byte_counter
            self._byte_stage += 1
            self._increase()

    def _increase(self) -> None:
        """Fast recovery, then additive, then hyper increase (figure 7 of the paper)."""
        profile = self._profile
        steps = profile.fast_recovery_steps
        if self._timer_stage > steps and self._byte_stage > steps:
            self._target += self.weight * profile.hyper_bps
        elif self._timer_stage > steps or self._byte_stage > steps:
            self._target += self.weight * profile.additive_bps
        self._target = min(self._line, self._target)
        if self.weight == 1.0:
            self.rate = (self._target + self.rate) / 2.0
        else:
            # Every increase goes half the way to the target; this step is the main part that the weight
            # scales.
            self.rate += min(1.0, self.weight / 2.0) * (self._target - self.rate)
        if self.rate >= 0.99 * self._line:
            self.rate = self._line
            self.limited = False
