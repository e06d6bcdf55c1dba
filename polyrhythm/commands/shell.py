# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm shell` and `make shell SWITCH=leaf1`: p4runtime-shell on a switch of the running fabric.

p4runtime-shell needs an older protobuf than the controller, so it has a virtual environment of its own. This
module finds the switch and starts the Python of that environment.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# What the shell's environment needs: the dependency group "shell" of pyproject.toml, which an installed
# package does not have.
REQUIREMENTS = ("p4runtime-shell==0.0.6",)

# Below the election id of every controller, so the shell can read, but never becomes the primary.
ELECTION_ID = "0,1"


class ShellError(Exception):
    """The shell cannot be opened. The message is one line for the user."""


@dataclass(frozen=True, slots=True)
class SwitchAddress:
    """The P4Runtime address of a switch of the running fabric."""

    address: str
    device_id: int


def fabric_file(environment: Mapping[str, str], uid: int) -> Path:
    """The file in which the running fabric of this user writes the addresses of its switches."""
    return Path(environment.get("XDG_RUNTIME_DIR") or "/tmp") / f"polyrhythm-{uid}" / "fabric.json"


def read_switches(path: Path) -> dict[str, SwitchAddress]:
    """Read the switches of the running fabric, by name.

    Raises:
        ShellError: no fabric is running, or the file is not legal.
    """
    try:
        document = json.loads(path.read_text())
        return {
            name: SwitchAddress(str(entry["address"]), int(entry["device_id"]))
            for name, entry in document["switches"].items()
        }
    except FileNotFoundError:
        raise ShellError("no fabric is running (start one with `polyrhythm run`)") from None
    except OSError as error:
        raise ShellError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ShellError(f"{path}: not written by a running fabric; start the fabric again") from None


def find_switch(switches: Mapping[str, SwitchAddress], name: str) -> SwitchAddress:
    """Find a switch by name.

    Raises:
        ShellError: there is no such switch; the message lists the names.
    """
    if name in switches:
        return switches[name]
    known = ", ".join(sorted(switches)) or "none"
    said = f"unknown switch {name!r}" if name else "no switch given"
    raise ShellError(f"{said}; known: {known} (polyrhythm shell SWITCH)")


def shell_command(python: Path, switch: SwitchAddress) -> list[str]:
    """The command line of p4runtime-shell for a switch, with the Python of its own environment."""
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm shell`."""
    parser.add_argument(
        "switch", nargs="?", default="", metavar="SWITCH", help="name of the switch, for example leaf1"
    )
    parser.add_argument(
        "--venv",
        type=Path,
        default=Path(".venv-shell"),
        metavar="DIR",
        help="virtual environment of the shell (default .venv-shell)",
    )
    parser.add_argument(
        "--requirements", action="store_true", help="print the packages that this environment needs, and exit"
    )


def run(args: argparse.Namespace) -> int:
    """Replace this process by the shell. Returns 2 with one line if that is impossible."""
    if args.requirements:
        print(*REQUIREMENTS)
        return 0
    try:
        switch = find_switch(read_switches(fabric_file(os.environ, os.getuid())), args.switch)
        python = args.venv / "bin" / "python"
        if not python.exists():
            made = f"python -m venv {args.venv} && {args.venv}/bin/pip install {' '.join(REQUIREMENTS)}"
            raise ShellError(f"{args.venv}: the environment of the shell does not exist; run `{made}`")
    except ShellError as error:
        print(f"polyrhythm shell: {error}", file=sys.stderr)
        return 2
    command = shell_command(python, switch)
    os.execv(command[0], command)
