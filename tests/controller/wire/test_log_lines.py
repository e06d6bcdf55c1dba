# SPDX-License-Identifier: Apache-2.0
"""The log: fields, formats, names that cannot forge a line, and the bound on its rate."""

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.wire.log_lines import (
    BURST,
    LINES_PER_S,
    MOST_WAITING,
    PLAN,
    SUMMARY_S,
    JsonLines,
    LogFormat,
    LogHandler,
    fields,
    printable,
)

ROOT = Path(__file__).parents[3]
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) [\w.]+: ")


class Log:
    def __init__(self, log_format: LogFormat = "text") -> None:
        self.stream, self.now_s = io.StringIO(), 100.0
        self.handler = LogHandler(self.stream, log_format)
        self.logger = logging.Logger("controller.test")
        self.logger.addFilter(self.at_now)
        self.logger.addHandler(self.handler)

    def at_now(self, record: logging.LogRecord) -> bool:
        record.created = self.now_s
        return True

    @property
    def lines(self) -> list[str]:
        self.handler.flush()
        return self.stream.getvalue().splitlines()


@pytest.fixture
def plan_12() -> Iterator[None]:
    token = PLAN.set(12)
    yield
    PLAN.reset(token)


def record(template: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "", 0, template, args, None)


def test_the_fields_of_a_line_are_what_its_template_names() -> None:
    assert fields(record("switch %s: port %d (to %s) is %s", "leaf1", 3, "h1", "up")) == {"switch": "leaf1"}
    assert fields(record("host %s: a worker of job %s is refused: %s", "h1", "vgg", "no")) == {
        "host": "h1",
        "job": "vgg",
    }
    assert fields(record("%5.1f %% of job %s in plan %d of %s", 3.0, "a", 7, "x")) == {"job": "a", "plan": 7}
    assert fields(record("%*d switch %s", 3, 1, "leaf2")) == {"switch": "leaf2"}
    # The first of a kind is the subject.
    assert fields(record("job %s has changed: free of job %s", "a", "b")) == {"job": "a"}
    assert fields(record("nothing of all that: %s", "switch leaf1")) == {}


def test_a_line_has_the_plan_that_is_written_meanwhile(plan_12: None) -> None:
    log = Log()
    log.logger.error("switch %s refused: %s", "leaf1", "why")
    log.logger.info("plan %d is in force", 12)
    assert log.lines[0].endswith("ERROR controller.test: switch leaf1 refused: why [plan 12]")
    assert log.lines[1].endswith("INFO controller.test: plan 12 is in force")


def test_json_has_time_level_and_fields_on_every_line(plan_12: None) -> None:
    log = Log("json")
    log.logger.warning("switch %s: the session is lost (%s)", "leaf1", "gone")
    (line,) = map(json.loads, log.lines)
    assert LINE.match(f"{line.pop('time')} WARNING x: ")
    assert line == {
        "level": "WARNING",
        "logger": "controller.test",
        "message": "switch leaf1: the session is lost (gone)",
        "switch": "leaf1",
        "plan": 12,
    }


FORGED = "\n2026-01-01T00:00:00.000Z INFO controller.live.core: plan 9 is in force"


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_name_makes_a_line_of_its_own(end: str, log_format: LogFormat) -> None:
    log = Log(log_format)
    name = FORGED.replace("\n", end)
    log.logger.warning("job %s is refused", name)
    assert len(log.lines) == 1
    if log_format == "json":
        assert json.loads(log.lines[0])["job"] == name
    else:
        assert LINE.match(log.lines[0]), log.lines


def test_what_is_not_printed_is_shown_as_an_escape() -> None:
    # Colours, a bell, a text that runs backwards, an invisible character, half of a surrogate pair.
    assert printable("a\x1b[31m\x07b") == "a\\x1b[31m\\x07b"
    assert printable("a\u202eb\u200bc\ud800") == "a\\u202eb\\u200bc\\ud800"
    assert printable("\U000e0001") == "\\U000e0001"
    assert printable("Größe 日本 é") == "Größe 日本 é"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_traceback_makes_no_line_that_looks_like_another(log_format: LogFormat) -> None:
    log = Log(log_format)
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.logger.exception("it failed")
    assert sum(bool(LINE.match(line)) for line in log.lines) == (log_format == "text")
    assert "ValueError" in "".join(log.lines)
    if log_format == "json":
        assert "test_log_lines" in json.loads(log.lines[0])["traceback"]
    else:
        assert all(line.startswith("  | ") for line in log.lines[1:])
        assert len(log.lines) > 3


def test_a_template_that_comes_too_often_is_left_out_and_counted() -> None:
    log = Log()
    for n in range(10_000):
        log.logger.warning("switch %s refused: %d", "leaf1", n)
        log.logger.info("another message") if n == 5_000 else None
    said = [line for line in log.lines if "refused" in line]
    assert len(said) == BURST
    assert sum("another message" in line for line in log.lines) == 1
    log.now_s += SUMMARY_S
    log.logger.info("later")
    summary = "WARNING controller.test: 9900 more lines like this one were left out: switch %s refused: %d"
    assert [line for line in log.lines if line.endswith(summary)] == [log.lines[-2]]
    for n in range(1_000):
        log.logger.warning("switch %s refused: %d", "leaf1", n)
    assert sum("refused: " in line and "more" not in line for line in log.lines) == BURST + int(
        SUMMARY_S * LINES_PER_S
    )
    log.now_s -= 3_600  # The host's clock was set back.
    log.logger.info("earlier")
    assert "950 more lines" in log.lines[-2]
    log.logger.warning("switch %s refused: %d", "leaf1", 0)
    log.handler.close()
    assert "1 more lines" in log.lines[-1]
    assert log.handler.limit.left_out == 9_900 + 950 + 1


def test_texts_that_are_all_different_do_not_make_the_log_grow() -> None:
    log = Log()
    for n in range(5_000):
        log.logger.warning(f"text {n}")  # as some libraries do
    assert len(log.lines) == 1_000 + BURST


def test_a_long_message_is_cut_off() -> None:
    log = Log()
    log.logger.warning("job %s", "x" * 1_000_000)
    assert len(log.lines[0]) < 5_000


def test_a_template_without_its_arguments_is_no_crash(capsys: pytest.CaptureFixture[str]) -> None:
    # logging itself says what is wrong with such a call; the next line is written.
    log = Log()
    log.logger.handle(record("switch %s and %s", "a"))
    log.logger.warning("next")
    assert log.lines[-1].endswith("next")
    assert "not enough arguments" in capsys.readouterr().err
    assert JsonLines().format(record("100 % of all")).count("\n") == 0


STALLED = """
import logging
from controller.wire.log_lines import MOST_WAITING, configure_log, lines_left_out
configure_log()
for n in range(10 * MOST_WAITING):
    logging.getLogger(f"logger{n % 900}").warning("a line of the log %s", "y" * 1_000)
print(lines_left_out() >= 5 * MOST_WAITING, flush=True)
input()
"""


def test_a_reader_that_does_not_read_holds_up_nothing() -> None:
    command = [sys.executable, "-c", STALLED]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT) as process:
        # Nobody reads standard error, and its pipe holds 64 KiB.
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        _, err = process.communicate("\n")
    # What had waited is there once somebody reads.
    assert err.count("a line of the log") > MOST_WAITING
    assert all(LINE.match(line) for line in err.splitlines())


def test_the_code_logs_templates_and_not_finished_texts() -> None:
    """A finished text has no fields, and the bound on the rate takes each for another message."""
    finished = re.compile(r"\blog\.\w+\(\s*(?:[\w.]+,\s*)?f[\"']")
    files = [p for top in ("controller", "hostagent") for p in sorted((ROOT / top).rglob("*.py"))]
    assert len(files) > 100
    assert [str(p) for p in files if finished.search(p.read_text())] == []
