# SPDX-License-Identifier: Apache-2.0
"""`make shell SWITCH=leaf1`: p4runtime-shell on a switch of the running fabric, as a backup client.

p4runtime-shell pins a protobuf older than the controller's, so it runs in a virtual environment of its
own; this module finds the switch and hands over to that environment's Python.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Below every controller's election id: the shell reads, and never takes the switch from its controller.
ELECTION_ID = "0,1"


class ShellError(Exception):
    """What keeps the shell from opening: one line for the user."""


@dataclass(frozen=True, slots=True)
class SwitchAddress:
    """Where a switch of the running fabric serves P4Runtime."""

    address: str
    device_id: int


def fabric_file(environment: Mapping[str, str], uid: int) -> Path:
    """Name the file in which the running fabric of that user says where its switches are."""
    return Path(environment.get("XDG_RUNTIME_DIR") or "/tmp") / f"polyrhythm-{uid}" / "fabric.json"


def read_switches(path: Path) -> dict[str, SwitchAddress]:
    """Read the switches of the running fabric by name; ShellError if there is no fabric, or a broken file."""
    try:
        document = json.loads(path.read_text())
        return {
            name: SwitchAddress(str(entry["address"]), int(entry["device_id"]))
            for name, entry in document["switches"].items()
        }
    except FileNotFoundError:
        raise ShellError("no fabric is running (start one with `make run`)") from None
    except OSError as error:
        raise ShellError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ShellError(f"{path}: is not what a running fabric writes; start the fabric again") from None


def find_switch(switches: Mapping[str, SwitchAddress], name: str) -> SwitchAddress:
    """Find a switch by name; ShellError with the known names if there is none."""
    if name in switches:
        return switches[name]
    known = ", ".join(sorted(switches)) or "none"
    said = f"unknown switch {name!r}" if name else "no switch given"
    raise ShellError(f"{said}; known: {known} (make shell SWITCH=NAME)")


def shell_command(python: Path, switch: SwitchAddress) -> list[str]:
    """Build the command line of p4runtime-shell for a switch, with the Python of its own environment."""
    return [
        str(python),
        "-m",
        "p4runtime_sh",
        "--grpc-addr",
        switch.address,
        "--device-id",
        str(switch.device_id),
        "--election-id",
        ELECTION_ID,
    ]


def requirements(pyproject: Path) -> list[str]:
    """Read what the shell's environment needs: the dependency group "shell" of pyproject.toml."""
    document = tomllib.loads(pyproject.read_text())
    return [str(requirement) for requirement in document["dependency-groups"]["shell"]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `polyrhythm shell`."""
    parser.add_argument("switch", nargs="?", default="", help="the switch's name, such as leaf1")
    parser.add_argument(
        "--venv", type=Path, default=Path(".venv-shell"), help="the shell's environment (default .venv-shell)"
    )
    parser.add_argument(
        "--requirements", action="store_true", help="print what that environment needs, and do nothing else"
    )


def run(args: argparse.Namespace) -> int:
    """Open the shell in place of this process; 2 with one line when that cannot be."""
    if args.requirements:
        print(*requirements(Path("pyproject.toml")))
        return 0
    try:
        switch = find_switch(read_switches(fabric_file(os.environ, os.getuid())), args.switch)
        python = args.venv / "bin" / "python"
        if not python.exists():
            raise ShellError(f"{args.venv}: there is no environment for the shell; run `make shell`")
    except ShellError as error:
        print(f"polyrhythm shell: {error}", file=sys.stderr)
        return 2
    command = shell_command(python, switch)
    os.execv(command[0], command)
