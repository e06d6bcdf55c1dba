# SPDX-License-Identifier: Apache-2.0
"""The request that the controller's process ends: by a signal, or by one of its threads."""

from __future__ import annotations

import contextlib
import os
import signal


class StopRequest:
    """The main thread waits for it. It stays open until the process ends.

    Python runs the handler of a signal in the main thread, between two steps of its program. A signal that
    comes just before the main thread waits for a lock, or that another thread receives, would wait with it.
    So the system itself writes a byte for each signal into a pipe (`signal.set_wakeup_fd`): it wakes the
    reader.
    """

    def __init__(self) -> None:
        self._out, self._into = os.pipe()
        os.set_blocking(self._into, False)

    def on_signals(self, *numbers: int) -> None:
        """Let these signals make the request. Only for the main thread."""
        signal.set_wakeup_fd(self._into, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda *_: None)

    def make(self) -> None:
        """Make the request. Any thread may call it."""
        # A full pipe holds requests enough.
        with contextlib.suppress(BlockingIOError):
            os.write(self._into, b"\0")

    def wait(self) -> None:
        """Wait until the request is made."""
        os.read(self._out, 1)
