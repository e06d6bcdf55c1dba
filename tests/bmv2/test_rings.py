# SPDX-License-Identifier: Apache-2.0
"""Frames through a pair of veth: as they were on the wire, long ones and tagged ones too, ours not."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import subprocess, time
    from polyrhythm.bench import wire
    from bmv2.interfaces import RawInterface

    wire._leave_namespace()
    subprocess.run("ip link add name one type veth peer name two".split(), check=True)
    for name in ("one", "two"):
        path = f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6"
        with open(path, "w") as setting:
            setting.write("1")
        subprocess.run(f"ip link set {name} mtu 9000 up".split(), check=True)
    one, two = RawInterface("one"), RawInterface("two")
    assert one.carrier() and two.carrier()
    head = bytes.fromhex("020000000001020000000002")
    frames = [head + b"\\x88\\xb5" + bytes([n % 256]) * (46 + n % 1400) for n in range(3000)]
    frames += [head + b"\\x81\\x00\\x20\\x07\\x08\\x00" + bytes(60), head + b"\\x88\\xa8\\x00\\x05\\x86\\xdd" + bytes(60)]
    frames += [head + b"\\x88\\xb5" + bytes(range(256)) * 30]
    for first in range(0, len(frames), 100):
        batch = frames[first : first + 100]
        for frame in batch:
            one.send(frame)
        two.send(head + b"\\x88\\xb6" + bytes(46))
        deadline = time.monotonic() + 120
        got = []
        while len(got) < len(batch) and time.monotonic() < deadline:
            frame = two.receive()
            if frame is not None:
                got.append(frame)
        assert got == batch, (first, [f.hex()[:60] for f in got[-3:]], len(got))
        assert two.receive() is None
    assert one.lost == two.lost == 0
    one.close()
    two.close()
    print("carried", len(frames))
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2")
def test_frames_arrive_as_they_were_sent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "carried 3003\n", done.stderr
