# SPDX-License-Identifier: Apache-2.0
"""Bytes over time: the byte counters of a job, read at even intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hostagent.clock import EventClock

LONGEST_REPORT = 4096
"""The greatest number of bins in a report; a request for more gets this many. Chosen: a message of some 100
KB."""
OCTETS = 4
"""`port_xmit_data` counts words of four octets."""

ByteSource = Callable[[], Mapping[str, int]]
"""Bytes sent so far by each flow, headers included. The name "" stands for all bytes that leave the NIC."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Bytes of each flow in bins of `bin_ns`, the first at `start_ns` (fabric time), and the FLOPs done in
    all bins.
    """

    start_ns: int
    bin_ns: int
    flows: Mapping[str, tuple[int, ...]]
    flops: float


class ByteSampler:
    """Reads a source at each multiple of `bin_ns` of fabric time, and reports bins of `report_ns` at a time.

    `to_fabric` and `to_local` convert between the host's time and fabric time. New counters, and counters
    below their last value (the NIC was reset, or the flow opened again), count from zero. Raises ValueError
    unless `bin_ns` > 0.
    """

    def __init__(
        self,
        clock: EventClock,
        source: ByteSource,
        flops: Callable[[], float],
        *,
        bin_ns: int,
        report_ns: int,
        to_fabric: Callable[[int], int],
        to_local: Callable[[int], int],
        on_counts: Callable[[Counts], None],
    ) -> None:
        if bin_ns <= 0:
            raise ValueError(f"a bin takes time: {bin_ns} ns")
        self._clock = clock
        self._source = source
        self._flops = flops
        self._bin_ns = bin_ns
        self._bins = max(1, min(LONGEST_REPORT, report_ns // bin_ns))
        self._to_fabric = to_fabric
        self._to_local = to_local
        self._on_counts = on_counts
        self._running = True
        self._last: dict[str, int] = {}
        self._bytes: dict[str, list[int]] = {}
        self._taken = 0
        self._flops_base = 0.0
        self._edge = (to_fabric(clock.now) // bin_ns + 1) * bin_ns
        self._wait(self._first)

    def stop(self) -> None:
        """Stop reading. Bins that are not reported yet are dropped."""
        self._running = False

    def _wait(self, then: Callable[[], None]) -> None:
        self._clock.call_at(max(self._clock.now, self._to_local(self._edge)), then)

    def _first(self) -> None:
        if not self._running:
            return
        self._last = dict(self._source())
        self._flops_base = self._flops()
        self._edge += self._bin_ns
        self._wait(self._read)

    def _read(self) -> None:
        if not self._running:
            return
        # On a busy host a reading may be late. Its bytes then belong to all bins since the last reading.
        bins = 1 + max(0, (self._to_fabric(self._clock.now) - self._edge) // self._bin_ns)
        self._edge += (bins - 1) * self._bin_ns
        if bins > LONGEST_REPORT:
            # The clock was set, or the host was suspended: start again.
            self._bytes, self._taken = {}, 0
            self._edge += self._bin_ns
            self._wait(self._first)
            return
        totals = self._source()
        for flow, total in totals.items():
            before = self._last.get(flow)
            sent = total if before is None or total < before else total - before
            share, rest = divmod(sent, bins)
            counts = self._bytes.setdefault(flow, [0] * self._taken)
            counts.extend(share + (i < rest) for i in range(bins))
        self._taken += bins
        for counts in self._bytes.values():
            counts.extend([0] * (self._taken - len(counts)))
        self._last = dict(totals)
        # Reports end at multiples of their length, so those of all hosts leave together.
        if self._taken >= self._bins or self._edge // self._bin_ns % self._bins < bins:
            self._report()
        self._edge += self._bin_ns
        self._wait(self._read)

    def _report(self) -> None:
        flops = self._flops()
        flows = {flow: tuple(counts) for flow, counts in sorted(self._bytes.items())}
        start = self._edge - self._taken * self._bin_ns
        counts = Counts(start, self._bin_ns, flows, flops - self._flops_base)
        self._bytes, self._taken, self._flops_base = {}, 0, flops
        self._on_counts(counts)


def port_counter(port: Path) -> ByteSource:
    """The bytes that leave an InfiniBand or RoCE port, from `counters/port_xmit_data` in its folder
    (/sys/class/infiniband/DEVICE/ports/N). Reading raises OSError if the device is gone.
    """
    counter = port / "counters" / "port_xmit_data"
    return lambda: {"": OCTETS * int(counter.read_text())}


def interface_counter(folder: Path) -> ByteSource:
    """The bytes that leave a network interface, from the kernel's `statistics/tx_bytes` in its folder
    (/sys/class/net/NAME), for hosts without RDMA. Reading raises OSError if the interface is gone.
    """
    counter = folder / "statistics" / "tx_bytes"
    return lambda: {"": int(counter.read_text())}
