# SPDX-License-Identifier: Apache-2.0
"""The history in the store: its coarsest buckets as records, of the last 24 hours."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from controller.live.history import TIERS, Bucket, StoredBucket, from_stored, to_stored
from controller.store.interface import Kind, StoreRefusedError
from controller.store.records import decode

log = logging.getLogger(__name__)

_DAY_NS = 86_400_000_000_000


class StoredHistory:
    """What of the history the store has. `unix_minus_clock_ns` turns the controller's times into Unix times.
    `records` are those of the store at the start. With `same_fabric` they go on; without, they go.
    """

    def __init__(
        self,
        records: Mapping[str, bytes],
        now_ns: int,
        unix_minus_clock_ns: int,
        directions: int,
        *,
        same_fabric: bool,
    ) -> None:
        self._offset_ns = unix_minus_clock_ns
        self._gone = set(records)
        self._kept: dict[str, int] = {}
        self.restored: list[Bucket] = []
        oldest_ns = now_ns + unix_minus_clock_ns - _DAY_NS
        for key, data in records.items() if same_fabric else ():
            try:
                stored = decode(data, StoredBucket, f"history {key}")
            except StoreRefusedError as error:
                # A day of figures is no reason not to start.
                log.warning("%s; it is left out", error)
                continue
            bucket = from_stored(stored, unix_minus_clock_ns, directions)
            if bucket is not None and stored.start_ns >= oldest_ns and bucket.step_ns == TIERS[-1][0]:
                self.restored.append(bucket)
                self._kept[key] = stored.start_ns
                self._gone.discard(key)

    def changes(self, finished: Iterable[Bucket]) -> Mapping[tuple[Kind, str], object | None]:
        """The records that store finished buckets and remove those that are too old or were left out."""
        found: dict[tuple[Kind, str], object | None] = {(Kind.HISTORY, key): None for key in self._gone}
        self._gone = set()
        for bucket in finished:
            stored = to_stored(bucket, self._offset_ns)
            key = f"{stored.start_ns:020}"
            found[Kind.HISTORY, key] = stored
            self._kept[key] = stored.start_ns
        if found:
            newest_ns = max(self._kept.values(), default=0)
            for key in [key for key, start_ns in self._kept.items() if start_ns < newest_ns - _DAY_NS]:
                del self._kept[key]
                found[Kind.HISTORY, key] = None
        return found
