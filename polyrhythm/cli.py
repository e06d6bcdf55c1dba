# SPDX-License-Identifier: Apache-2.0
"""The command line: `polyrhythm COMMAND`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import metadata

from polyrhythm.completion import add_completion_options, complete, is_asked
from polyrhythm.subcommands import CommandParser, add_commands, run_command

COMMANDS = {
    "run": (
        "polyrhythm.run.command",
        "measure scenarios under plain ECMP and under a policy, then show the fabric live",
    ),
    "plan": ("polyrhythm.commands.plan", "compute the plan of a scenario and explain each decision"),
    "route": ("polyrhythm.commands.route", "compute paths, source ports and rates for flows or jobs"),
    "topo": (
        "polyrhythm.commands.topo",
        "show a topology file with its switches' hashes, or import another program's",
    ),
    "priority": (
        "polyrhythm.commands.priority",
        "compute the priority level of each job, for jobs that share links",
    ),
    "sim": (
        "polyrhythm.commands.sim",
        "simulate a workload on a cluster, flow by flow, under one or more policies",
    ),
    "sweep": (
        "polyrhythm.commands.sweep",
        "simulate every combination of traces, topologies, policies, schedulers and seeds, on a Dask cluster",
    ),
    "interleave": (
        "polyrhythm.commands.interleave",
        "compute the time-shift of each job, for jobs and links listed in a file",
    ),
    "place": (
        "polyrhythm.commands.place",
        "rank candidate placements of a job by how well it can share links in time with the others",
    ),
    "config": (
        "polyrhythm.commands.config",
        "check files that a person writes, and print the JSON schemas of such files",
    ),
    "doctor": (
        "polyrhythm.commands.doctor",
        "find the likeliest faults of a deployment, on the host where it runs",
    ),
    "bench": ("polyrhythm.bench", "measure the speed of the parts of Polyrhythm on this machine"),
    "chaos": (
        "polyrhythm.chaos",
        "break a running controller, its agents and its switches by the seed, and check that they recover",
    ),
    "soak": (
        "polyrhythm.chaos.soak",
        "run a controller, agents and jobs for long, and check that nothing grows",
    ),
    "paper": ("polyrhythm.paper", "reproduce the experiments of the papers"),
    "pki": (
        "polyrhythm.commands.pki",
        "make a private authority, the certificates of hosts, and tokens of the REST API",
    ),
    "switch": (
        "bmv2.standalone",
        "start the embedded switch as a process, with the command line of simple_switch_grpc",
    ),
    "controller": ("polyrhythm.commands.controller", "start the controller of one fabric"),
    "serve": (
        "polyrhythm.commands.controller",
        "start the controller of one fabric, as `controller` does",
    ),
    "agent": (
        "hostagent.process",
        "start the agent of one host: it pins flows to source ports and paces jobs",
    ),
    "fabric": (
        "polyrhythm.fabric.process",
        "start the embedded fabric: switches, NICs and agents in one process",
    ),
    "emulation": (
        "polyrhythm.emulation.process",
        "start the Mininet fabric: switches, agents and sockets in network namespaces (needs root)",
    ),
    "pipeline": (
        "polyrhythm.commands.pipeline",
        "write the files that a switch needs besides P4Info: device configuration and queue settings",
    ),
    "stf": ("polyrhythm.commands.stf", "run packet tests of p4c (STF) against the embedded switch"),
    "history": ("polyrhythm.commands.history", "list the last plans of a running controller"),
    "rollback": (
        "polyrhythm.commands.rollback",
        "bring an earlier plan of a running controller into force again",
    ),
    "apply": (
        "polyrhythm.commands.apply",
        "show what another policy, or the jobs of a scenario, would change on a running controller",
    ),
    "jobs": ("polyrhythm.commands.jobs", "declare, list, show and end jobs on a running controller"),
    "slurm": (
        "polyrhythm.commands.slurm",
        "declare and end Slurm's jobs on a running controller, from its prolog and epilog",
    ),
    "kubernetes": (
        "polyrhythm.commands.kubernetes",
        "declare and end the training jobs of a Kubernetes cluster on a running controller",
    ),
    "drain": (
        "polyrhythm.commands.drain",
        "take switches and links of a running fabric out of use, for maintenance",
    ),
    "undrain": (
        "polyrhythm.commands.undrain",
        "take drained switches and links of a running fabric back into use",
    ),
    "state": (
        "polyrhythm.commands.state",
        "back up the state file of a controller, or restore a backup",
    ),
    "shell": ("polyrhythm.commands.shell", "open p4runtime-shell on a switch of the running fabric"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    _open_standard_streams()
    _ignore_web_proxies()
    parser = CommandParser(
        prog="polyrhythm",
        description="The SDN controller for GPU training clusters.",
        epilog="Exit codes: 0 done, 1 failed, 2 bad input, 3 deposed as leader, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"polyrhythm {metadata.version('polyrhythm')}")
    add_completion_options(parser)
    add_commands(parser, COMMANDS, "command")
    if is_asked(os.environ):
        complete(parser, os.environ)
    try:
        # Importing the command's module happens here and takes time, so Ctrl-C must work here too.
        args = parser.parse_args(arguments)
    except KeyboardInterrupt:
        return 130
    try:
        code = run_command(COMMANDS, "command", args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of standard output closed it (`| head`).
        _discard_output()
        return 1
    except OSError as error:
        # For example a full disk or a folder without write permission: no command handles these itself.
        where = f"{error.filename}: " if error.filename else ""
        print(f"polyrhythm {args.command}: {where}{error.strerror or error}", file=sys.stderr)
        _discard_output()
        return 1
    return code


def _discard_output() -> None:
    """Send the rest of standard output to /dev/null, so that the flush at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _ignore_web_proxies() -> None:
    """Remove the web proxy settings from the environment of this process and its children.

    Polyrhythm connects to switches, agents and its own processes directly. gRPC and urllib would use the
    machine's web proxy, even for 127.0.0.1. A proxy set for gRPC on purpose (`grpc_proxy`) stays.
    """
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)


def _open_standard_streams() -> None:
    """Open /dev/null where the caller closed a stream (`>&-`); Python has None for it otherwise."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
