# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm stf program.json test.stf`: run p4c's packet tests against the embedded switch.

It works as p4c's own runner: packets are sent in the order of the file. What leaves a port is compared in
order with what is expected there. A port that the test names must not send anything else; packets to other
ports are dropped. Packets are sent 1 ms apart, and `wait` lasts one second.
"""

from __future__ import annotations

import argparse
import heapq
import json
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bmv2 import EmbeddedSwitch, P4Program, P4ProgramError, load_program
from bmv2.entries import TableEntryError
from polyrhythm.stf.control import Control
from polyrhythm.stf.language import (
    Add,
    Check,
    Command,
    Expect,
    NoPacket,
    Remove,
    Send,
    SetDefault,
    Statement,
    StfError,
    Wait,
    read_statements,
)

_PACKET_NS = 1_000_000
_WAIT_NS = 1_000_000_000
# A step with more events than this is taken for an endless loop of packets. Chosen.
_EVENT_LIMIT = 100_000
_FCS_BYTES = 4
# An egress_spec of 9 bits cannot be 512, so no port of a test is the CPU port.
_NO_CPU_PORT = 512
# v1model's drop port. The ports of a test are below it.
_DROP_PORT = 511
_CONDITIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class StepClock:
    """An event heap whose time the test moves forward."""

    def __init__(self) -> None:
        self.now = 0
        self._count = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Run the callback at `time_ns`."""
        self._count += 1
        heapq.heappush(self._heap, (time_ns, self._count, callback, args))

    def pass_time(self, span_ns: int) -> bool:
        """Move time forward and run the events until then. Returns False if there are too many events."""
        until, events = self.now + span_ns, 0
        while self._heap and self._heap[0][0] <= until:
            self.now, _, callback, args = heapq.heappop(self._heap)
            callback(*args)
            events += 1
            if events > _EVENT_LIMIT:
                return False
        self.now = until
        return True


class PacketTest:
    """Runs one test against a new switch.

    `failures` has a line for each failed expectation, `notes` a line for each value that the test only reads.
    """

    def __init__(self, program: P4Program, statements: Sequence[Statement], queues: int = 8) -> None:
        self.failures: list[str] = []
        self.notes: list[str] = []
        self._statements = statements
        self._clock = StepClock()
        self._switch = EmbeddedSwitch(
            "stf", self._clock, cpu_port=_NO_CPU_PORT, drop_port=_DROP_PORT, queues=queues
        )
        self._switch.load(program)
        self._switch.log = self.notes.append
        self._control = Control(self._switch, program)
        self._sent: dict[int, list[bytes]] = {}
        self._expected: dict[int, list[Expect]] = {}
        self._before: dict[int, int] = {}
        named = {s.port: s for s in statements if isinstance(s, Send | Expect)}
        for port, statement in sorted(named.items()):
            if port >= _DROP_PORT:
                raise statement.place.error(f"a port is 0 to {_DROP_PORT - 1}, got {port}")
            self._sent[port] = []
            self._switch.add_port(port, rate_bps=None, transmit=self._sent[port].append)

    def run(self) -> None:
        """Run all statements.

        Raises:
            StfError: a statement cannot be executed.
        """
        for statement in self._statements:
            try:
                self._step(statement)
            except TableEntryError as error:
                raise statement.place.error(str(error)) from None
        self._compare()

    def _step(self, statement: Statement) -> None:
        if isinstance(statement, Send):
            self._before = {port: len(frames) for port, frames in self._sent.items()}
            self._switch.receive(statement.port, statement.frame)
            if not self._clock.pass_time(_PACKET_NS):
                raise statement.place.error("the packet comes back to the switch without end")
        elif isinstance(statement, Expect):
            self._expected.setdefault(statement.port, []).append(statement)
        elif isinstance(statement, NoPacket):
            for port, frames in self._sent.items():
                if len(frames) > self._before.get(port, 0):
                    self.failures.append(
                        f"{statement.place}: no packet was expected, port {port} sent {frames[-1].hex()}"
                    )
        elif isinstance(statement, Wait):
            self._clock.pass_time(_WAIT_NS)
        elif isinstance(statement, Check):
            self._check(statement)
        elif isinstance(statement, Add):
            self._control.add(statement)
        elif isinstance(statement, SetDefault):
            self._control.set_default(statement)
        elif isinstance(statement, Remove):
            self._control.remove(statement)
        else:
            assert isinstance(statement, Command)
            note = self._control.command(statement)
            if note:
                self.notes.append(f"{statement.place}: {note}")

    def _check(self, check: Check) -> None:
        value = self._control.value(check)
        kind = "register" if check.register else f"counter ({check.unit})"
        if check.condition is None:
            self.notes.append(f"{check.place}: {kind} {check.name}({check.index}) is {value}")
        elif self._holds(check, value):
            return
        else:
            self.failures.append(
                f"{check.place}: {kind} {check.name}({check.index}) is {value}, "
                f"expected {check.condition} {check.value}"
            )

    def _holds(self, check: Check, value: int) -> bool:
        """Whether a check holds. Bytes may include the frame check sequence, because chips count it."""
        assert check.condition is not None
        holds = _CONDITIONS[check.condition]
        if holds(value, check.value):
            return True
        if check.register or check.unit != "bytes":
            return False
        packets = self._control.value(replace(check, unit="packets"))
        if not holds(value + _FCS_BYTES * packets, check.value):
            return False
        self.notes.append(
            f"{check.place}: holds if each packet counts {_FCS_BYTES} bytes of FCS; BMv2 does not count them"
        )
        return True

    def _compare(self) -> None:
        for port, frames in self._sent.items():
            expected = self._expected.get(port, [])
            for expect, frame in zip(expected, frames, strict=False):
                difference = _difference(expect, frame)
                if difference:
                    self.failures.append(f"{expect.place}: port {port}: {difference}")
            for expect in expected[len(frames) :]:
                self.failures.append(f"{expect.place}: port {port} did not send {_shown(expect)}")
            for frame in frames[len(expected) :]:
                self.failures.append(f"{self._name()}: port {port} sent an unexpected packet: {frame.hex()}")

    def _name(self) -> str:
        return self._statements[-1].place.file if self._statements else "?"


def _shown(expect: Expect) -> str:
    if expect.digits is None:
        return "any packet"
    return f"{expect.digits}{'$' if expect.exact else ''}"


def _difference(expect: Expect, frame: bytes) -> str | None:
    """How a frame differs from the expected one; None if it does not."""
    if expect.digits is None:
        return None
    digits = frame.hex()
    detail = f"\n  expected {_shown(expect)}\n  got      {digits}"
    if len(digits) < len(expect.digits):
        return f"the packet has {len(digits)} digits, expected {len(expect.digits)}{detail}"
    for position, (wanted, got) in enumerate(zip(expect.digits, digits, strict=False)):
        if wanted not in ("*", got):
            return f"differs at digit {position} (byte {position // 2}): expected {wanted}, got {got}{detail}"
    if expect.exact and len(digits) > len(expect.digits):
        return f"the packet has {len(digits)} digits, expected no more than {len(expect.digits)}{detail}"
    return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm stf`."""
    parser.add_argument(
        "program", metavar="program.json", help="the JSON that p4c-bm2-ss wrote for a v1model program"
    )
    parser.add_argument(
        "tests", metavar="test.stf", nargs="+", help="packet tests; each runs on a new switch"
    )
    parser.add_argument(
        "--queues",
        type=int,
        default=8,
        metavar="N",
        help="number of priority queues of each port, 1 or more (default 8)",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also print what the program logs and the values that a test only reads",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result of each test as JSON, with -v with notes"
    )


def run(args: argparse.Namespace) -> int:
    """Run the tests. Returns 0 if all pass, 1 if one fails, 2 if something cannot be read or executed."""
    try:
        program = load_program(Path(args.program).read_bytes())
    except (OSError, P4ProgramError) as error:
        print(f"polyrhythm stf: {_reason(args.program, error)}", file=sys.stderr)
        return 2
    if args.queues < 1:
        print(f"polyrhythm stf: --queues must be at least 1, got {args.queues}", file=sys.stderr)
        return 2
    code = 0
    results: list[dict[str, Any]] = []
    for test in args.tests:
        code = max(code, _run_test(program, test, args.queues, args.verbose, results if args.json else None))
    if args.json:
        print(json.dumps({"tests": results}, indent=2))
    return code


def _run_test(
    program: P4Program, test: str, queues: int, verbose: bool, results: list[dict[str, Any]] | None
) -> int:
    """Run one test. Its result is printed, or added to `results`."""
    try:
        text = Path(test).read_bytes().decode()
        test_run = PacketTest(program, read_statements(text, test), queues)
        test_run.run()
    except (OSError, UnicodeDecodeError, StfError) as error:
        print(f"polyrhythm stf: {_reason(test, error)}", file=sys.stderr)
        return 2
    code = 1 if test_run.failures else 0
    if results is not None:
        notes = {"notes": test_run.notes} if verbose else {}
        results.append({"test": test, "passed": code == 0, "failures": test_run.failures, **notes})
        return code
    if verbose:
        for note in test_run.notes:
            print(note)
    for failure in test_run.failures:
        print(failure)
    print(f"{test}: {'FAIL' if code else 'PASS'}")
    return code


def _reason(path: str, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{path}: {error.strerror}"
    if isinstance(error, UnicodeDecodeError):
        return f"{path}: not UTF-8 text"
    return str(error) if isinstance(error, StfError) else f"{path}: {error}"
