# SPDX-License-Identifier: Apache-2.0
"""BMv2's two-rate three-colour meters."""

from __future__ import annotations

from .entries import EntryFault, MeterConfig, TableEntryError

GREEN, YELLOW, RED = 0, 1, 2
_SECOND = 1_000_000


class Meter:
    """One meter with two token buckets. The bucket of the peak rate is asked first, as in the colour-blind
    mode of RFC 2698.

    Times are in microseconds. Only whole tokens are added, counted from time zero, so no fraction is lost.
    Without a configuration every packet is green.
    """

    __slots__ = ("_by_bytes", "_committed", "_peak", "config")

    def __init__(self, by_bytes: bool) -> None:
        self.config: MeterConfig | None = None
        self._by_bytes = by_bytes
        self._peak = [0, 0]
        self._committed = [0, 0]

    def set(self, config: MeterConfig | None) -> None:
        """Configure the meter, its buckets full; None takes the configuration away."""
        if config is not None:
            if min(config.cir, config.cburst, config.pir, config.pburst) < 0:
                raise TableEntryError(
                    EntryFault.INVALID, f"a meter's rates and bursts are not negative: {config}"
                )
            if config.cir > config.pir:
                raise TableEntryError(
                    EntryFault.INVALID,
                    f"a meter's committed rate ({config.cir}) is at most its peak rate ({config.pir})",
                )
            self._peak = [config.pburst, 0]
            self._committed = [config.cburst, 0]
        self.config = config

    def execute(self, length: int, now: int) -> int:
        """The colour of a packet of so many bytes at `now`; takes its tokens.

        A red packet takes none, a yellow one only those of the peak rate.
        """
        config = self.config
        if config is None:
            return GREEN
        need = length if self._by_bytes else 1
        if not _take(self._peak, config.pir, config.pburst, need, now):
            return RED
        return GREEN if _take(self._committed, config.cir, config.cburst, need, now) else YELLOW


class MeterCells(dict[int, Meter]):
    """The meters of an array by index, each made when it is first used: most of a large array never are."""

    def __init__(self, size: int, by_bytes: bool) -> None:
        super().__init__()
        self.size = size
        self._by_bytes = by_bytes
        self._config: MeterConfig | None = None

    def __missing__(self, index: int) -> Meter:
        meter = self[index] = Meter(self._by_bytes)
        meter.set(self._config)
        return meter

    def set_all(self, config: MeterConfig | None) -> None:
        """Configure all meters, as `Meter.set` does one."""
        Meter(self._by_bytes).set(config)
        self._config = config
        self.clear()

    def configs(self) -> list[MeterConfig | None]:
        """The configuration of each meter."""
        return [self[index].config if index in self else self._config for index in range(self.size)]


def _take(bucket: list[int], rate: int, burst: int, need: int, now: int) -> bool:
    """Fill a bucket [tokens, tokens since time zero] up to `now`, and take from it if there is enough."""
    total = now * rate // _SECOND
    tokens = min(bucket[0] + total - bucket[1], burst)
    bucket[1] = total
    enough = tokens >= need
    bucket[0] = tokens - need if enough else tokens
    return enough
