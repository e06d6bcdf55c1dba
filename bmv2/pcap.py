# SPDX-License-Identifier: Apache-2.0
"""Capture files (libpcap's classic format, microseconds, Ethernet) of what passes an interface."""

from __future__ import annotations

import struct
from pathlib import Path
from types import TracebackType

_MAGIC = 0xA1B2C3D4
_VERSION = (2, 4)
_SNAP_LENGTH = 65535
_ETHERNET = 1


class PcapWriter:
    """One capture file; frames are on disk once written, so that a reader can follow."""

    def __init__(self, path: Path) -> None:
        """Create or overwrite the file. Raises OSError where that cannot be done."""
        self._file = path.open("wb", buffering=0)
        self._file.write(struct.pack("=IHHiIII", _MAGIC, *_VERSION, 0, 0, _SNAP_LENGTH, _ETHERNET))

    def write(self, time_ns: int, frame: bytes) -> None:
        """Add a frame seen at `time_ns` (nanoseconds since the epoch)."""
        seconds, rest = divmod(time_ns, 1_000_000_000)
        kept = frame[:_SNAP_LENGTH]
        self._file.write(struct.pack("=IIII", seconds, rest // 1000, len(kept), len(frame)) + kept)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> PcapWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
