# SPDX-License-Identifier: Apache-2.0
"""The Ryu application: the controller as other Ryu applications meet it, on os-ken's native hub.

`RyuApplications` is the launcher. A pump thread hands events to os-ken, for `send_event_to_observers` blocks
when an application's 128 slots are full; the controller's loop only ever puts into a queue.
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
from controller.live.messages import Notice

log = logging.getLogger(__name__)

# Events that wait for slow applications; beyond that the newest are dropped, and it is said.
BACKLOG = 10_000
STOP_TIMEOUT_S = 1.0


class HubExit(BaseException):
    """What ends an application's event loop, instead of os-ken's choice of any exception at all."""


# os-ken's native hub has `TaskExit = Exception`: one exception in a handler would end that
# application's loop for good, and then block whoever sends it events.
hub.TaskExit = HubExit


class Polyrhythm(OSKenApp):  # type: ignore[misc]
    """The application that the events of `controller/events.py` come from."""

    _EVENTS: ClassVar = list(EVENTS)


class RyuError(RuntimeError):
    """A Ryu application that cannot be loaded; the message says which and why."""


class RyuApplications:
    """os-ken's application manager with our application, and others beside it."""

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
                raise RyuError(f"Ryu application {name!r} cannot be loaded: {error}") from None
        if len(self._manager.applications_cls) <= len(set(applications)):
            raise RyuError(f"no Ryu application in one of: {', '.join(applications)}")
        self._backlog: queue.Queue[Notice | None] = queue.Queue(BACKLOG)
        self._dropped = 0
        self._send: FrameSender = _nowhere
        self._app: Polyrhythm | None = None
        self._pump = threading.Thread(target=self._run, name="ryu events", daemon=True)

    def start(self, send: FrameSender) -> None:
        """Instantiate the applications and begin to hand them events.

        `send(switch, payload, egress_port, submit_to_ingress)` must be safe to call from any thread.
        """
        self._send = send
        self._manager.instantiate_apps(**self._manager.create_contexts())
        self._app = self._manager.applications["Polyrhythm"]
        self._pump.start()

    def publish(self, notice: Notice) -> None:
        """Queue an event; never blocks."""
        try:
            self._backlog.put_nowait(notice)
        except queue.Full:
            self._dropped += 1
            if self._dropped & (self._dropped - 1) == 0:
                log.error("Ryu applications are too slow: %d events dropped", self._dropped)

    def stop(self) -> None:
        """End the applications; one that hangs in a handler is left behind after a second."""
        try:
            self._backlog.put_nowait(None)
        except queue.Full:
            log.warning("Ryu applications are ended with events still waiting")
        closer = threading.Thread(target=self._close, name="ryu stop", daemon=True)
        closer.start()
        closer.join(STOP_TIMEOUT_S)
        if closer.is_alive():
            log.error("a Ryu application does not end; it is left behind")

    def _close(self) -> None:
        if self._pump.is_alive():
            self._pump.join(STOP_TIMEOUT_S)
        self._manager.close()

    def _run(self) -> None:
        while (notice := self._backlog.get()) is not None:
            if self._app is not None:
                self._app.send_event_to_observers(event_of(notice, self._send))


def _nowhere(switch: str, payload: bytes, egress_port: int, submit_to_ingress: bool) -> None:
    """Before the controller runs there is nowhere to send a frame."""
