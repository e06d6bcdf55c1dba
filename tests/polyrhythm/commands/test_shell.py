# SPDX-License-Identifier: Apache-2.0
"""`make shell`: finding the switch, and p4runtime-shell itself against our server from its own environment."""

import argparse
import fcntl
import json
import os
import subprocess
import tempfile
import tomllib
import venv
from pathlib import Path

import pytest
from finsy.proto import p4r

from polyrhythm.commands.shell import (
    REQUIREMENTS,
    SwitchAddress,
    add_arguments,
    fabric_file,
    read_switches,
    run,
    shell_command,
)

ROOT = Path(__file__).parents[3]
FABRIC = {
    "switches": {
        "leaf1": {"address": "127.0.0.1:4", "device_id": 1},
        "leaf2": {"address": "h:5", "device_id": 2},
    }
}


def open_shell(*argv):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(argv))


@pytest.fixture
def fabric(tmp_path, monkeypatch):
    """A function that writes the running fabric's file."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def write(text):
        path = fabric_file(os.environ, os.getuid())
        path.parent.mkdir()
        path.write_text(text)
        return path

    return write


def test_the_fabrics_file_is_the_users_own():
    assert fabric_file({"XDG_RUNTIME_DIR": "/run/user/7"}, 7) == Path("/run/user/7/polyrhythm-7/fabric.json")
    assert fabric_file({}, 7) == Path("/tmp/polyrhythm-7/fabric.json")


def test_switches_are_read_by_name(fabric):
    path = fabric(json.dumps(FABRIC))
    assert read_switches(path) == {
        "leaf1": SwitchAddress("127.0.0.1:4", 1),
        "leaf2": SwitchAddress("h:5", 2),
    }


@pytest.mark.parametrize(
    ("written", "argv", "said"),
    [
        (None, ["leaf1"], "no fabric is running (start one with `polyrhythm run`)"),
        ("{", ["leaf1"], "not written by a running fabric"),
        ('{"switches": {"leaf1": {}}}', ["leaf1"], "not written by a running fabric"),
        ("[]", ["leaf1"], "not written by a running fabric"),
        (json.dumps(FABRIC), ["spine9"], "unknown switch 'spine9'; known: leaf1, leaf2"),
        (json.dumps(FABRIC), [], "no switch given; known: leaf1, leaf2"),
        (json.dumps(FABRIC), ["leaf1", "--venv", "nosuch"], "the environment of the shell does not exist"),
    ],
)
def test_what_keeps_the_shell_shut_is_one_line_and_exit_2(fabric, capsys, written, argv, said):
    if written is not None:
        fabric(written)
    assert open_shell(*argv) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_requirements_are_those_of_the_project_file_and_need_no_repository(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert open_shell("--requirements") == 0
    printed = capsys.readouterr().out.split()
    assert printed == tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["shell"]
    assert printed == list(REQUIREMENTS)


def test_a_missing_environment_is_named_with_the_command_that_makes_it(fabric, capsys, monkeypatch, tmp_path):
    fabric(json.dumps(FABRIC))
    monkeypatch.chdir(tmp_path)
    assert open_shell("leaf1") == 2
    made = "python -m venv .venv-shell && .venv-shell/bin/pip install p4runtime-shell==0.0.6"
    assert made in capsys.readouterr().err


def usable(python):
    if not python.exists():
        return False
    probe = subprocess.run([python, "-c", "import p4runtime_sh"], capture_output=True, check=False)
    return probe.returncode == 0


@pytest.fixture(scope="session")
def shell_python():
    """The Python of the shell's environment, made where `make shell` makes it."""
    home = ROOT / ".venv-shell"
    python = home / "bin" / "python"
    # Several test processes may want it at once: one makes it, the others wait.
    with (Path(tempfile.gettempdir()) / f"polyrhythm-shell-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not usable(python):
            venv.create(home, with_pip=True, clear=True)
            install = [python, "-m", "pip", "install", "--quiet", *REQUIREMENTS]
            done = subprocess.run(install, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                pytest.skip(f"pip cannot install p4runtime-shell: {done.stderr.strip().splitlines()[-1]}")
    return python


def test_the_shell_reads_and_does_not_take_the_switch(rig, controller, shell_python, p4info):
    table = next(table for table in p4info.tables if table.preamble.name == "next_hop")
    forward = next(action for action in p4info.actions if action.preamble.name == "forward")
    entry = p4r.TableEntry(table_id=table.preamble.id)
    entry.match.add(field_id=1).exact.value = b"\x07"
    entry.action.action.action_id = forward.preamble.id
    for param in (1, 2, 3):
        entry.action.action.params.add(param_id=param, value=b"\x01")
    controller.write(p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=entry)))
    counter = next(counter for counter in p4info.counters if counter.preamble.name == "egress_packets")
    cell = p4r.CounterEntry(counter_id=counter.preamble.id, index=p4r.Index(index=9))
    cell.data.packet_count = 42
    controller.write(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(counter_entry=cell)))

    command = shell_command(shell_python, SwitchAddress(rig.server.address, 1))
    command[1:3] = [str(Path(__file__).parents[2] / "rigs" / "shell_session.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["version"] == "1.5.0"
    assert seen["tables"] == sorted(table.preamble.name for table in p4info.tables)
    assert seen["hops"] == ["07"]
    assert seen["count"] == [42]
    assert seen["refused"] == "PERMISSION_DENIED"
    assert rig.server.connected
    assert controller.inbox.empty()


def test_the_real_shell_opens_on_the_switch(rig, controller, shell_python):
    command = shell_command(shell_python, SwitchAddress(rig.server.address, 1))
    done = subprocess.run(
        command, input="print(len(tables))\nexit\n", capture_output=True, text=True, timeout=300, check=False
    )
    assert "Welcome to the IPython shell for P4Runtime" in done.stdout, done.stderr
    assert "only have read access" in done.stdout
    assert done.returncode == 0
