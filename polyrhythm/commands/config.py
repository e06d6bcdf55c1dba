# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm config`: check files that a person writes, and print their JSON schemas."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from polyrhythm.file_kinds import FILE_KINDS, check_file, missing_places
from polyrhythm_files import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm config`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="read files and print their mistakes")
    check.add_argument("files", metavar="FILE", type=Path, nargs="+", help="a file in YAML, JSON or TOML")
    check.add_argument("--kind", choices=tuple(FILE_KINDS), help="default: by the keys of the file")
    check.add_argument(
        "--keys-only",
        action="store_true",
        help="leave out whether the sockets, folders and files that they name are on this machine",
    )
    check.add_argument("--json", action="store_true", help="print kind and mistakes of each file as JSON")
    schema = actions.add_parser("schema", help="print the JSON schema of a kind of file")
    schema.add_argument("kind", metavar="KIND", choices=tuple(FILE_KINDS), help=", ".join(FILE_KINDS))
    schema.add_argument("--json", action="store_true", help="print JSON, as without this option")


def run(args: argparse.Namespace) -> int:
    """Check files, or print a schema. Returns 2 if a file has a mistake."""
    if args.action == "schema":
        print(json.dumps(FILE_KINDS[args.kind].schema(), indent=2))
        return 0
    code, found = 0, []
    for path in args.files:
        kind = args.kind
        try:
            kind = check_file(path, args.kind)
            missing = [] if args.keys_only else missing_places(path, kind)
        except ConfigError as error:
            missing = [error]
        code = 2 if missing else code
        if args.json:
            found.append({"file": str(path), "kind": kind, "mistakes": [str(m) for m in missing]})
            continue
        for mistake in missing:
            print(mistake, file=sys.stderr)
        if not missing:
            print(f"{path}: a legal {kind} file")
    if args.json:
        print(json.dumps({"files": found}, indent=2))
    return code
