# SPDX-License-Identifier: Apache-2.0
"""A small process that gives the leader's lease back when the leader's process has died.

Without it a standby would wait until the lease expires. The guard waits for the end of its standard input,
which the system closes when the leader's process is gone, however it ended; then the lease goes, and a
standby leads at once. It does nothing that the end of the lease would not do a few seconds later. When the
whole host dies, the guard dies too, and the lease expires by itself.

Run as `python -m controller.process.lease_guard`: one JSON object with the members and certificates on the
first line, then one line with the lease (hexadecimal) when there is one, and "released" when it is given
back.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import subprocess
import sys
import time
from pathlib import Path

from controller.store.etcd.address import EtcdAddress, EtcdTls
from controller.store.etcd.members import Etcd, EtcdError

log = logging.getLogger(__name__)

_RELEASED = "released"
# Chosen, in seconds: longer than the lease, because a restart of etcd lets leases begin anew.
REVOKE_S = 30.0
# Chosen: the deadline of one attempt, and the pause before the next one.
CALL_S = 5.0
RETRY_S = 0.1
# Chosen: how long the end of the controller waits for the guard's.
CLOSE_S = 1.0


class LeaseGuard:
    """The controller's side of the guard."""

    def __init__(self, address: EtcdAddress) -> None:
        """Start the process. It needs a moment, so start it before there is a lease."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "controller.process.lease_guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        tls = address.tls
        pem = {} if tls is None else {"ca": tls.ca, "cert": tls.cert, "key": tls.key}
        files = {name: str(path) for name, path in pem.items() if path is not None}
        self._say(json.dumps({"members": address.members, "tls": files}))

    def hold(self, lease: int) -> None:
        """Guard this lease."""
        self._say(f"{lease:x}")

    def release(self) -> None:
        """The lease is given back: there is nothing to guard."""
        self._say(_RELEASED)

    def close(self) -> None:
        """End the process. It gives back a lease that was not released."""
        stdin = self._process.stdin
        with contextlib.suppress(OSError):
            if stdin is not None:
                stdin.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, line: str) -> None:
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
        except OSError as error:
            log.warning("the guard of the lease is gone (%s): after a crash the lease ends by itself", error)


def main() -> None:
    """Wait for the end of standard input, then give the lease back."""
    # It must outlive the signals that end the controller.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    given = json.loads(sys.stdin.readline())
    files = {name: Path(path) for name, path in given["tls"].items()}
    tls = EtcdTls(**files) if files else None
    lease = 0
    for line in sys.stdin:
        lease = 0 if line.strip() == _RELEASED else int(line, 16)
    if lease:
        etcd = Etcd(EtcdAddress(tuple(given["members"]), tls=tls))
        deadline = time.monotonic() + REVOKE_S
        while time.monotonic() < deadline:
            try:
                etcd.revoke(lease, CALL_S)
                return
            except EtcdError as error:
                if not error.unreachable:
                    return
            time.sleep(RETRY_S)


if __name__ == "__main__":
    main()
