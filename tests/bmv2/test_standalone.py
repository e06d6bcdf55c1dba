# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm switch`: on real interfaces where we are root, and its answers to bad command lines everywhere."""

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from bmv2 import interfaces
from bmv2.pcap import PcapWriter
from bmv2.standalone import run
from polyrhythm.subcommands import CommandParser

ROOT = Path(__file__).parents[2]
P4INFO = ROOT / "p4/build/polyrhythm.v1model.p4info.txtpb"
PROGRAM = ROOT / "p4/build/polyrhythm.v1model.json"


def can_make_namespaces():
    tools = shutil.which("unshare") and shutil.which("ip")
    return bool(tools) and subprocess.run(["unshare", "--net", "true"], check=False).returncode == 0


@pytest.mark.skipif(
    os.geteuid() != 0 or not can_make_namespaces(), reason="needs root, ip and unshare for veth pairs"
)
def test_frames_cross_real_interfaces_and_carrier_is_told(tmp_path):
    script = str(Path(__file__).parents[1] / "rigs" / "veth_session.py")
    session = [sys.executable, script, str(P4INFO), str(PROGRAM), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["unshare", "--net", *session],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "out": True,
        "in": [True, 1],
        "at first": ["UP", "UP"],
        "then": ["2", "DOWN"],
        "exit": 0,
    }
    probe = b"\x88\xb5are you there?"
    assert {path.name: captured(path, probe) for path in tmp_path.iterdir()} == {
        "a0_in.pcap": 1,
        "a0_out.pcap": 0,
        "b0_in.pcap": 0,
        "b0_out.pcap": 1,
    }


def test_the_process_may_have_as_many_files_open_as_the_system_allows():
    """Connections that say nothing take a file each; of the usual 1,024 none would be left for a controller."""
    address = socket.socket()
    address.bind(("127.0.0.1", 0))
    port = address.getsockname()[1]
    address.close()

    arguments = ["switch", "--no-p4", "--log-console", "--", "--grpc-server-addr", f"127.0.0.1:{port}"]
    few = ["sh", "-c", 'ulimit -Sn 256; ulimit -Hn 4096; exec "$@"', "sh"]
    command = [*few, sys.executable, "-m", "polyrhythm", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert "serves P4Runtime" in process.stdout.readline()
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        process.terminate()
    assert re.search(r"Max open files +(\d+) +(\d+)", limits).groups() == ("4096", "4096")


def captured(path, text):
    return sum(text in frame for _, frame in frames_of(path.read_bytes()))


def frames_of(capture):
    magic, major, minor, _, _, _, link = struct.unpack("=IHHiIII", capture[:24])
    assert (magic, major, minor, link) == (0xA1B2C3D4, 2, 4, 1)
    position = 24
    while position < len(capture):
        seconds, micros, kept, length = struct.unpack_from("=IIII", capture, position)
        yield seconds * 1_000_000 + micros, capture[position + 16 : position + 16 + kept]
        assert kept == min(length, 65535)
        position += 16 + kept


def test_a_capture_file_holds_frames_and_times(tmp_path):
    path = tmp_path / "x.pcap"
    with PcapWriter(path) as capture:
        capture.write(1_700_000_000_123_456_789, b"one")
        capture.write(1_700_000_001_000_000_000, bytes(70000))
        assert path.stat().st_size == 24 + 16 + 3 + 16 + 65535
    assert list(frames_of(path.read_bytes())) == [
        (1_700_000_000_123_456, b"one"),
        (1_700_000_001_000_000, bytes(65535)),
    ]


def test_a_capture_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        PcapWriter(tmp_path / "nowhere" / "x.pcap")


def start(*argv):
    parser = CommandParser()
    parser.module = "bmv2.standalone"
    return run(parser.parse_args(argv))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "or --no-p4"),
        (["--no-p4", "prog.json"], "contradict"),
        (["--no-p4", "--pcap=nosuchdirectory"], "no such directory"),
        (["--no-p4", "--pcap", "--", "--dp-grpc-server-addr", "127.0.0.1:0"], "captures are of interfaces"),
        (["--no-p4", "-i", "1@lo", "--", "--dp-grpc-server-addr", "127.0.0.1:0"], "give one"),
        (["--no-p4", "--", "--dp-grpc-server-addr", "nowhere"], "--dp-grpc-server-addr nowhere"),
        (["--no-p4", "--", "--grpc-server-cert", "c.pem"], "needs --grpc-server-ssl"),
        (["--no-p4", "--", "--grpc-server-with-client-auth"], "needs --grpc-server-ssl"),
        (["--no-p4", "--", "--grpc-server-ssl"], "needs --grpc-server-cert FILE"),
        (
            [
                "--no-p4",
                "--",
                "--grpc-server-ssl",
                "--grpc-server-cert",
                "nosuch.pem",
                "--grpc-server-key",
                "k",
            ],
            "nosuch.pem: No such file",
        ),
        (["--no-p4", "--device-id", "-1"], "must be in 0..18446744073709551615"),
        (["--no-p4", "--device-id", "18446744073709551616"], "must be in 0..18446744073709551615"),
        (["--no-p4", "-i", "9" * 5000 + "@lo"], "must be PORT@INTERFACE"),
        (["--no-p4", "--port-rate", "9" * 5000], "with a rate above 0"),
        (["--no-p4", "--", "--cpu-port", "511"], "is the drop port"),
        (["--no-p4", "--", "--grpc-server-addr", "127.0.0.1:" + "9" * 5000], "not an address"),
        (["--no-p4", "--port-rate", "0"], "above 0"),
        (["--no-p4", "--queue-packets", "0"], "1 or more"),
        (["--no-p4", "--queue-bytes", "0"], "--queue-bytes 0: must be 1 or more"),
        (["--no-p4", "--queue-rate", "5"], "--queue-rate 5: needs --bmv2"),
        (["--no-p4", "--bmv2", "--queue-rate", "0"], "--queue-rate 0: must be above 0 packets/s"),
        (["--no-p4", "--bmv2", "--port-rate", "5"], "--bmv2 and --port-rate: "),
        (["--no-p4", "--bmv2", "--queue-bytes", "5"], "--bmv2 and --queue-bytes: "),
        (["--no-p4", "--port-table", "port_state"], "--port-table port_state: must be TABLE=ACTION"),
        (["--no-p4", "-i", "eth0"], "PORT@INTERFACE"),
        (["--no-p4", "-i", "511@eth0"], "0..510"),
        (["--no-p4", "-i", "255@eth0"], "CPU"),
        (["--no-p4", "-i", "1@lo", "-i", "1@eth0"], "port 1 is lo already"),
        (["--no-p4", "-i", "1@nosuch0"], "none of that name; there are"),
        (["--no-p4", "--", "--priority-queues", "9"], "1..8"),
        (["--no-p4", "--", "--cpu-port", "x"], "after --"),
        (["--no-p4", "--", "--nonsense"], "after --"),
        (["--no-p4", "--", "--grpc-server-addr", "nowhere"], "host:port"),
        (["--no-p4", "--", "--grpc-server-addr", "127.0.0.1:99999"], "127.0.0.1:99999: not an address"),
        (["nosuch.json"], "nosuch.json: No such file"),
        (["nosuch.json", "--device-id", "1", "--", "--cpu-port", "x"], "after --"),
        (["nosuch.json", "-L", "off", "--", "--cpu-port", "7"], "nosuch.json: No such file"),
        (["-L", "off", "nosuch.json", "--device-id", "1", "--"], "nosuch.json: No such file"),
        (["--no-p4", "--", "prog.json"], "after --: unrecognized arguments: prog.json"),
    ],
)
def test_a_bad_command_line_is_one_clear_line_and_exit_2(argv, said, capsys):
    assert start(*argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("polyrhythm switch: ")
    assert error.count("\n") == 1
    assert said in error


def test_a_program_that_is_none_is_said(tmp_path, capsys):
    bad = tmp_path / "bad.json"
    bad.write_text("{]")
    assert start(str(bad)) == 2
    assert f"polyrhythm switch: {bad}: not JSON" in capsys.readouterr().err


def test_a_busy_port_is_said(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert start(str(PROGRAM), "--", "--grpc-server-addr", address) == 2
    error = capsys.readouterr().err
    assert f"--grpc-server-addr {address}: cannot listen there" in error
    assert error.count("\n") == 1


def test_want_of_rights_is_said(capsys, monkeypatch):
    real = socket.socket

    def barred(family=socket.AF_INET, *arguments, **options):
        if family == socket.AF_PACKET:
            raise PermissionError
        return real(family, *arguments, **options)

    monkeypatch.setattr(interfaces.socket, "socket", barred)
    assert start("--no-p4", "-i", "1@lo") == 2
    assert "need root (CAP_NET_RAW)" in capsys.readouterr().err
