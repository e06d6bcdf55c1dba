# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm slurm`: declare and end Slurm's jobs on a running controller.

deploy/slurm has the scripts that Slurm calls. They start this command and do not wait for it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any
from urllib.parse import quote

from polyrhythm.integrations.description import DescriptionError
from polyrhythm.integrations.slurm import PREFIX, declared_job, job_name
from polyrhythm.rest_client import CallError, add_controller_options, call, call_pages, reported
from polyrhythm.subcommands import integer

_AGAIN_S = 1.0
"""How often the controller is asked again. Chosen."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm slurm`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    prolog = actions.add_parser(
        "prolog",
        help="declare the job of the environment (PrologSlurmctld)",
        description="Declare the job of the environment (PrologSlurmctld).",
    )
    prolog.add_argument(
        "--gpus-per-node",
        type=integer(1, 1024),
        default=8,
        metavar="N",
        help="GPUs that a job uses on a node, where its comment does not say `gpus` (default %(default)s)",
    )
    epilog = actions.add_parser(
        "epilog",
        help="end the job of the environment (EpilogSlurmctld)",
        description="End the job of the environment (EpilogSlurmctld).",
    )
    sync = actions.add_parser(
        "sync",
        help="end the declared jobs that run no more",
        description="End the declared jobs whose numbers are not on standard input: "
        "squeue --all --noheader --format=%A | polyrhythm slurm sync",
    )
    # An epilog that comes while the prolog still tries must try for longer.
    for action, seconds in ((prolog, 20), (epilog, 30)):
        action.add_argument(
            "--wait",
            type=integer(0, 3600),
            default=seconds,
            metavar="S",
            help="seconds to try again where the controller does not answer (default %(default)s)",
        )
    for action in (prolog, epilog, sync):
        action.add_argument("--json", action="store_true", help="print JSON")
        add_controller_options(action)


def run(args: argparse.Namespace) -> int:
    """Carry out the action. Returns 0, 1 if the controller cannot be reached, 2 if it refuses."""
    actions = {"prolog": _prolog, "epilog": _epilog, "sync": _sync}

    def work() -> None:
        try:
            declared, ended = actions[args.action](args)
        except DescriptionError as error:
            raise CallError(2, str(error)) from None
        if args.json:
            print(json.dumps({"declared": declared, "ended": ended}))
        else:
            said = [f"job {name} is declared" for name in declared] + [
                f"job {name} is ended" for name in ended
            ]
            print("\n".join(said) or "nothing to do")

    return reported(f"slurm {args.action}", work)


def _prolog(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    body = declared_job(os.environ, args.gpus_per_node)
    if body is None:
        return [], []
    try:
        _patiently(args, "jobs", body, method="POST")
    except CallError as error:
        # Slurm calls a prolog again for a job that it requeues, or an answer was lost.
        if error.status != 409 or not _is_declared(args, body):
            raise
    return [body["name"]], []


def _epilog(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    name = job_name(os.environ)
    try:
        # 404: the prolog may still be trying.
        _patiently(args, _path(name), method="DELETE", statuses=(404,))
    except CallError as error:
        if error.status != 404:
            raise
        return [], []
    return [], [name]


def _sync(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    running = {f"{PREFIX}{word}" for word in sys.stdin.read().split()}
    if not running:
        raise CallError(
            2, "no job on standard input; legal: the numbers of all jobs, as `squeue` prints them"
        )
    names = [job["name"] for job in call_pages(args, "jobs")["jobs"]]
    over = [
        n for n in names if n.removeprefix(PREFIX).isdecimal() and n.startswith(PREFIX) and n not in running
    ]
    for name in over:
        call(args, _path(name), method="DELETE")
    return [], over


def _is_declared(args: argparse.Namespace, body: dict[str, Any]) -> bool:
    """Whether the job is there with these hosts."""
    found = call(args, f"{_path(body['name'])}/declaration")
    hosts: list[str] = found["hosts"]
    return bool(hosts == body["hosts"])


def _patiently(
    args: argparse.Namespace, path: str, body: object = None, *, method: str, statuses: tuple[int, ...] = ()
) -> None:
    """A call that is made again for `--wait` seconds while there is no answer, the controller does not lead,
    or it answers with one of `statuses`."""
    deadline = time.monotonic() + args.wait
    while True:
        try:
            call(args, path, body, method=method)
            return
        except CallError as error:
            temporary = error.code == 1 or error.status in statuses
            if not temporary or time.monotonic() > deadline:
                raise
        time.sleep(_AGAIN_S)


def _path(name: str) -> str:
    return f"jobs/{quote(name, safe='')}"
