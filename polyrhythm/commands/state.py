# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm state`: back up the state file of a controller, and restore a backup."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from controller.store.backup import backup, restore_backup
from controller.store.interface import Kind, StoreError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands."""
    commands = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, text, file in (
        ("backup", "copy the state file, also while a controller uses it", "new file for the copy"),
        (
            "restore",
            "replace the content of the state file by that of a backup; the controller must not run",
            "a backup",
        ),
    ):
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.add_argument("file", type=Path, metavar="FILE", help=file)
        command.add_argument(
            "--state",
            type=Path,
            required=True,
            metavar="STATE",
            help="the state file: what `polyrhythm controller --state` names",
        )
        command.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run one sub-command. Returns the exit code: 0 done, 2 for a file that cannot be used."""
    if str(args.state).startswith("etcd:"):
        print(
            f"polyrhythm state {args.what}: --state {args.state} is no file; legal: an SQLite file (of etcd, "
            "`etcdctl snapshot` makes and restores a backup)",
            file=sys.stderr,
        )
        return 2
    try:
        if args.what == "backup":
            backup(args.state, args.file)
            said = {"state": str(args.state), "file": str(args.file)}
            print(json.dumps(said) if args.json else f"{args.state} is copied to {args.file}")
            return 0
        loaded = restore_backup(args.file, args.state)
    except StoreError as error:
        print(f"polyrhythm state {args.what}: {error}", file=sys.stderr)
        return 2
    jobs = len(loaded.records[Kind.JOB])
    if args.json:
        found = {"jobs": jobs, "last_version": loaded.last_version}
        print(json.dumps({"state": str(args.state), "file": str(args.file), **found}))
    else:
        print(f"{args.state} holds {args.file} now: {jobs} jobs, plans up to version {loaded.last_version}")
    return 0
