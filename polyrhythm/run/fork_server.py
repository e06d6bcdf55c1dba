# SPDX-License-Identifier: Apache-2.0
"""A process that has imported what fabrics and controllers need, and forks one of them for each request.

A controller takes 2 s of processor time to import its modules; a usual session takes 12 s in all. The process
that runs sessions cannot fork itself, because it has threads. This one has none, and has not called gRPC,
which does not survive a fork.

It reads requests from a socket (`Request`) and ends when the socket is closed. For each request it forks a
process that waits: that one forks the child, writes `{"pid": ...}` and at the child's end `{"code": ...}`
(negative: the signal) to the request's status socket, each as a line of JSON, and ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import NamedTuple

PRELOADED = (
    "polyrhythm.fabric.process",
    "polyrhythm.commands.controller",
    "controller.process.server",
    "polyrhythm.what_if",
)
"""The modules that are imported once. The command `controller` imports the last two only when it serves."""
# More than the arguments and the environment of any process (Linux: MAX_ARG_STRLEN is 128 KiB).
_LONGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """A child to start: `polyrhythm *arguments`, its working folder and its environment."""

    arguments: Sequence[str]
    folder: str
    environment: Mapping[str, str]

    def send(self, server: socket.socket, streams: Streams) -> None:
        """Ask the fork server.

        Raises:
            OSError: it is gone, or the request is too long.
        """
        socket.send_fds(server, [json.dumps(asdict(self)).encode()], streams)


class Streams(NamedTuple):
    """The file descriptors of a child's standard input, output and error, and of its status socket."""

    input: int
    output: int
    error: int
    status: int


def serve(server: socket.socket) -> list[str] | None:
    """Answer requests until the socket is closed: then None. In a child, return its arguments."""
    # Nobody waits for the processes that wait for children.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, fds, _, _ = socket.recv_fds(server, _LONGEST, len(Streams._fields))
        if not data:
            return None
        pid = -1
        # Where the system has no more processes, the status socket is closed, which says enough.
        with contextlib.suppress(OSError):
            pid = os.fork()
        if pid == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _start(Request(**json.loads(data)), Streams(*fds))
        for fd in fds:
            os.close(fd)


def _start(request: Request, streams: Streams) -> list[str]:
    """Fork the child and wait for it. Only the child returns."""
    standard = streams[:3]
    with socket.socket(fileno=streams.status) as answers:
        pid = os.fork()
        if pid:
            for fd in standard:
                os.close(fd)
            _say(answers, pid=pid)
            _say(answers, code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            os._exit(0)
    for number, fd in enumerate(standard):
        os.dup2(fd, number)
        os.close(fd)
    # Ctrl-C on the terminal is for the process that runs the sessions.
    os.setpgid(0, 0)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    # What `ps` and `top` show as the command's name.
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="utf-8") as name:
        name.write(request.arguments[0][:15])
    return list(request.arguments)


def _say(answers: socket.socket, **words: int) -> None:
    # If the process that asked has ended, the child notices that by its standard input.
    with contextlib.suppress(OSError):
        answers.sendall(json.dumps(words).encode() + b"\n")


def main() -> int:
    """Serve the socket whose number is the argument."""
    for name in PRELOADED:
        import_module(name)
    # What is imported stays, in every child.
    gc.collect()
    gc.freeze()
    arguments = serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is None:
        return 0
    from polyrhythm import cli

    sys.argv[:] = ["polyrhythm", *arguments]
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
