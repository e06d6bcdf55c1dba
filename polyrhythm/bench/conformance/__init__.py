# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench conformance`: the switch's server against P4Runtime 1.5 and a model of its state.

- `must_total`, `must_passed`, `must_not_applicable`: the rules of docs/p4runtime-conformance.tsv, those whose
  tests pass now, and those that are no rules for this server. The tests are the repository's.
- `programs_pushed`, `programs_refused`: programs pushed through P4Runtime, and those that the server refused
  though BMv2 takes them (`refused` says which, and why). Without simple_switch_grpc on PATH all that are
  refused count.
- `oracle_requests`, `oracle_disagreements`: random updates and reads of the entities of these programs, and
  answers or states other than the model's. The model reads P4Info and shares no code with the server. Tables,
  action profiles (members, groups, action sets), counters, meters, registers, direct resources, value sets,
  digests, multicast groups and clone sessions are written, deleted and read, by key and by wildcard. A
  disagreement names the section of the specification that the model goes by.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from polyrhythm.bench.conformance.bmv2_push import bmv2_accepts
from polyrhythm.bench.conformance.programs import Program, ProgramsError, folder_programs, own_program
from polyrhythm.bench.conformance.rules import RULES, RulesError, passed, read_rules
from polyrhythm.bench.conformance.session import RefusedError, Session, compare, served_switch
from polyrhythm.bench.report import show
from polyrhythm.progress import working
from polyrhythm.subcommands import integer

_ROOT = Path(__file__).resolve().parents[3]
_BMV2 = "simple_switch_grpc"
_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm bench conformance`."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--programs",
        type=Path,
        metavar="DIR",
        help="also push the programs of this folder: p4c's output, NAME.json with NAME.p4info.txtpb and"
        " NAME.entries.txtpb, or sources for v1model, which p4c-bm2-ss (on PATH, or P4C) compiles",
    )
    parser.add_argument(
        "--requests",
        type=integer(1),
        default=20_000,
        metavar="N",
        help="random updates and reads in all, shared among the programs (default %(default)s)",
    )
    parser.add_argument("--seed", type=integer(0), default=1, metavar="N", help="seed (default %(default)s)")
    parser.add_argument("--no-rules", action="store_true", help="do not run the tests of the rules")


def run(args: argparse.Namespace) -> int:
    """Measure and print. Returns 1 where something falls short, 2 for bad input."""
    try:
        compiler = shutil.which(os.environ.get("P4C") or "p4c-bm2-ss")
        programs = [own_program()]
        if args.programs is not None:
            programs += folder_programs(args.programs, compiler)
        with working("sending requests"):
            report = _rules(args.no_rules) | push_all(programs, args.requests, args.seed)
    except (ProgramsError, RulesError) as error:
        print(f"polyrhythm bench conformance: {error}", file=sys.stderr)
        return 2
    show(report, args.json)
    short = report["must_passed"] is not None and report["must_passed"] < (
        report["must_total"] - report["must_not_applicable"]
    )
    return 1 if short or report["programs_refused"] or report["oracle_disagreements"] else 0


def _rules(skip: bool) -> dict[str, Any]:
    path = _ROOT / RULES
    if not path.is_file() or not (_ROOT / "tests").is_dir():
        reason = "needs the repository, with its tests"
        return {"must_total": None, "must_passed": None, "must_not_applicable": None, "must_reason": reason}
    rules = read_rules(path)
    counts = {
        "must_total": len(rules),
        "must_passed": None if skip else passed(_ROOT, rules),
        "must_not_applicable": sum(not rule.applies for rule in rules),
    }
    return counts | ({"must_reason": "not asked for"} if skip else {})


def push_all(programs: list[Program], requests: int, seed: int) -> dict[str, Any]:
    """Push every program, and compare random requests to those that are taken with the model."""
    refused: dict[str, str] = {}
    taken: list[Program] = []
    said: list[str] = []
    codes: Counter[str] = Counter()
    done = disagreements = 0
    with served_switch() as address, Session(address) as session:
        for left, program in zip(range(len(programs), 0, -1), programs, strict=True):
            try:
                session.push(program)
            except RefusedError as error:
                refused[program.name] = str(error)
                continue
            taken.append(program)
            outcome = compare(session, program, max(1, (requests - done) // left), seed)
            done += outcome.requests
            disagreements += outcome.disagreements
            said += outcome.shown
            codes += outcome.codes
    binary = shutil.which(_BMV2)
    if binary is not None and refused:
        accepted = bmv2_accepts(binary, [program for program in programs if program.name in refused])
        refused = {name: reason for name, reason in refused.items() if name in accepted}
    return {
        "programs_pushed": len(taken),
        "programs_refused": len(refused),
        "refused": refused,
        "refused_by_bmv2_too": len(programs) - len(taken) - len(refused),
        "oracle_requests": done,
        "oracle_disagreements": disagreements,
        "oracle_codes": dict(sorted(codes.items())),
        "disagreements": said[:_SHOWN],
    }
