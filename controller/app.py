# SPDX-License-Identifier: Apache-2.0
"""The controller as a Ryu application, beside other Ryu applications, on os-ken's native hub.

`RyuApplications` is the launcher. os-ken's `send_event_to_observers` blocks when 128 events wait for an
application. So a pump thread calls it, and the controller's loop only puts events into a queue.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from typing import ClassVar

from os_ken.base.app_manager import AppManager, OSKenApp
from os_ken.lib import hub

from controller.events import EVENTS, FrameSender, event_of
from controller.live.notices import Notice

log = logging.getLogger(__name__)

# Events that may wait for slow applications; further events are dropped and counted in the log. Chosen.
BACKLOG = 10_000
# How long the applications may take to end. Chosen.
STOP_TIMEOUT_S = 1.0


class HubExit(BaseException):
    """The only exception that ends an application's event loop."""


# os-ken's native hub has `TaskExit = Exception`: one exception in a handler would end the event loop of that
# application for good, and then block every sender of events to it.
hub.TaskExit = HubExit


class Polyrhythm(OSKenApp):  # type: ignore[misc]
    """The application that sends the events of `controller/events.py`."""

    _EVENTS: ClassVar = list(EVENTS)


class RyuError(RuntimeError):
    """A Ryu application cannot be loaded; the message says which one and why."""


class RyuApplications:
    """os-ken's application manager with the controller's application and the others beside it."""

    def __init__(self, applications: Sequence[str]) -> None:
        """`applications`: module names or file paths of further Ryu applications.

        Raises:
            RyuError: one of them cannot be imported.
        """
        self._manager = AppManager()
        for name in (__name__, *applications):
            try:
                self._manager.load_apps([name])
            except (ImportError, OSError, SyntaxError) as error:
                raise RyuError(f"--app {name}: this Ryu application cannot be loaded: {error}") from None
        if len(self._manager.applications_cls) <= len(set(applications)):
            raise RyuError(
                f"--app: one of {', '.join(applications)} holds no Ryu application, a subclass of OSKenApp"
            )
        # Without observers an event would only wake the thread that sends it, and delay the control loop.
        self._observed = bool(applications)
        self._backlog: queue.Queue[Notice | None] = queue.Queue(BACKLOG)
        self._dropped = 0
        self._send: FrameSender = _nowhere
        self._app: Polyrhythm | None = None
        self._pump = threading.Thread(target=self._run, name="ryu events", daemon=True)

    def start(self, send: FrameSender) -> None:
        """Instantiate the applications and start to send them events.

        `send(switch, payload, egress_port, submit_to_ingress)` sends a frame. It is called from any thread.
        """
        self._send = send
        self._manager.instantiate_apps(**self._manager.create_contexts())
        self._app = self._manager.applications["Polyrhythm"]
        self._pump.start()

    def publish(self, notice: Notice) -> None:
        """Queue the event of a notice. Never blocks."""
        if not self._observed:
            return
        try:
            self._backlog.put_nowait(notice)
        except queue.Full:
            self._dropped += 1
            if self._dropped & (self._dropped - 1) == 0:
                log.error(
                    "the Ryu applications are too slow: %d events dropped, because %d wait already",
                    self._dropped,
                    BACKLOG,
                )

    def stop(self) -> None:
        """End the applications. One that hangs in a handler is abandoned after STOP_TIMEOUT_S."""
        try:
            self._backlog.put_nowait(None)
        except queue.Full:
            log.warning("the Ryu applications are ended while events still wait for them")
        closer = threading.Thread(target=self._close, name="ryu stop", daemon=True)
        closer.start()
        closer.join(STOP_TIMEOUT_S)
        if closer.is_alive():
            log.error("a Ryu application does not end; the controller stops without it")

    def _close(self) -> None:
        if self._pump.is_alive():
            self._pump.join(STOP_TIMEOUT_S)
        self._manager.close()

    def _run(self) -> None:
        while (notice := self._backlog.get()) is not None:
            if self._app is not None:
                self._app.send_event_to_observers(event_of(notice, self._send))


def _nowhere(switch: str, payload: bytes, egress_port: int, submit_to_ingress: bool) -> None:
    """Drop a frame: before `start` no switch can send it."""
