# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm switch`: on real interfaces where we are root, and its answers to bad command lines everywhere."""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bmv2 import interfaces
from bmv2.standalone import add_arguments, run

ROOT = Path(__file__).parents[2]
P4INFO = ROOT / "p4/build/polyrhythm.v1model.p4info.txtpb"
PROGRAM = ROOT / "p4/build/polyrhythm.v1model.json"


def can_make_namespaces():
    tools = shutil.which("unshare") and shutil.which("ip")
    return bool(tools) and subprocess.run(["unshare", "--net", "true"], check=False).returncode == 0


@pytest.mark.skipif(
    os.geteuid() != 0 or not can_make_namespaces(), reason="needs root, ip and unshare for veth pairs"
)
def test_frames_cross_real_interfaces_and_carrier_is_told():
    session = [sys.executable, str(Path(__file__).with_name("veth_session.py")), str(P4INFO), str(PROGRAM)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["unshare", "--net", *session],
        capture_output=True,
        text=True,
        timeout=60,
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


def start(*argv):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(argv))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "or --no-p4"),
        (["--no-p4", "prog.json"], "contradict"),
        (["--no-p4", "--pcap"], "tcpdump"),
        (["--no-p4", "--device-id", "-1"], "0 or more"),
        (["--no-p4", "--port-rate", "0"], "above 0"),
        (["--no-p4", "--queue-packets", "0"], "1 or more"),
        (["--no-p4", "-i", "eth0"], "PORT@INTERFACE"),
        (["--no-p4", "-i", "0@eth0"], "1..510"),
        (["--no-p4", "-i", "255@eth0"], "CPU"),
        (["--no-p4", "-i", "1@lo", "-i", "1@eth0"], "port 1 is lo already"),
        (["--no-p4", "-i", "1@nosuch0"], "none of that name; there are"),
        (["--no-p4", "--", "--priority-queues", "9"], "1..8"),
        (["--no-p4", "--", "--cpu-port", "x"], "after --"),
        (["--no-p4", "--", "--nonsense"], "after --"),
        (["--no-p4", "--", "--grpc-server-addr", "nowhere"], "host:port"),
        (["nosuch.json"], "nosuch.json: No such file"),
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
    assert "polyrhythm switch: " in capsys.readouterr().err


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
