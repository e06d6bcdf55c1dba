# SPDX-License-Identifier: Apache-2.0
"""What a command shows while it works, on a terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

CODE = """
import sys, time
from polyrhythm.progress import Bar, working
from controller import kernel
with working("planning"):
    time.sleep(1.8)
    for began, _ in kernel._watchers: began()
    time.sleep(1.2)
    for _, ended in kernel._watchers: ended()
assert not kernel._watchers
with Bar("simulated", 4) as bar:
    bar.step(3)
assert not kernel._watchers
print("result")
"""


def test_a_terminal_sees_what_is_done_and_that_kernels_are_compiled() -> None:
    reading, writing = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", CODE],
        stdout=subprocess.PIPE,
        stderr=writing,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(writing)
    seen = b""
    while True:
        try:
            seen += (part := os.read(reading, 65536))
        except OSError:
            break
        if not part:
            break
    os.close(reading)
    assert done.communicate()[0] == b"result\n"
    assert done.returncode == 0, seen
    for words in (b"planning", b"compiling kernels", b"simulated", b"3/4 jobs"):
        assert words in seen


def test_nothing_is_shown_where_there_is_no_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "result\n", "")
