# SPDX-License-Identifier: Apache-2.0
"""The command line. Each command's module is imported when it is called, so that none waits for another's."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module, metadata

# Command -> (module with add_arguments(parser) and run(args) -> exit code, help).
COMMANDS = {
    "run": (
        "polyrhythm.run.command",
        "measure scenarios under ECMP and under Polyrhythm, and show them live",
    ),
    "plan": ("polyrhythm.plan", "print the plan for a scenario, and why"),
    "switch": ("bmv2.standalone", "the embedded switch as a process, with simple_switch_grpc's command line"),
    "controller": ("controller.server", "the controller of one fabric"),
    "fabric": ("polyrhythm.fabric.process", "the embedded fabric: switches, NICs and agents in one process"),
    "pipeline": ("polyrhythm.pipeline", "what a target is given besides P4Info: device config, queueing"),
    "shell": ("polyrhythm.shell", "p4runtime-shell on a switch of the running fabric"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = next((word for word in given if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="polyrhythm",
        description="The SDN controller for GPU training clusters.",
        epilog="Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"polyrhythm {metadata.version('polyrhythm')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name == chosen:
            import_module(module).add_arguments(sub)
    args = parser.parse_args(given)
    try:
        code: int = import_module(COMMANDS[args.command][0]).run(args)
    except KeyboardInterrupt:
        return 130
    return code
