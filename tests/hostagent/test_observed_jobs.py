# SPDX-License-Identifier: Apache-2.0
"""Jobs that say nothing, followed live: real agents, and records that the tests write while they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median

import pytest
from agent_rig import MS, AgentProcess, Hub, command, config_text, eventually, needs_namespaces, serve_hub
from hypothesis import given, settings
from hypothesis import strategies as st

from hostagent.observed_iterations import BelievedProfile, find_profile, iterations
from hostagent.phases import ObservedProfile
from hostagent.record_files import GrowingFiles
from hostagent.records import CommunicationInterval, RecordReader, read_record

RECORDED = Path(__file__).parents[1] / "data" / "recorded"
ADDRESSES = {"h1": "10.7.0.1", "h2": "10.7.0.2"}


# -- a record that grows


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(["inspector.jsonl", "profiler_trace.json", "port_xmit_data.csv"]),
    seed=st.integers(0, 2**32),
)
def test_in_whatever_pieces_it_comes_a_record_says_the_same(name: str, seed: int) -> None:
    text = (RECORDED / name).read_text()
    draw, complaints, found, at = Random(seed), [], [], 0
    growing = RecordReader(complaints.append)
    data = text.encode()
    while at < len(data):
        size = draw.choice([1, 7, 300, 5_000, 60_000])
        found += growing.feed(data[at : at + size])
        at += size
    assert found == read_record(text)
    assert not complaints


def test_lines_that_make_no_sense_are_left_out_and_told() -> None:
    lines = (RECORDED / "inspector.jsonl").read_text().splitlines()
    complaints: list[str] = []
    growing = RecordReader(complaints.append)
    noise = [
        "{",
        "null",
        '{"coll_perf": 1}',
        '{"coll_perf": {}, "metadata": {"dump_timestamp_us": 1e999}}',
        "\x00\xff",
    ]
    spoilt = [lines[0], *noise, *lines[1:]]
    assert growing.feed("\n".join(spoilt).encode("latin1") + b"\n") == read_record("\n".join(lines))
    assert len(complaints) == len(noise)
    assert growing.feed(b"x" * (2 << 20)) == []
    assert "longer than 1 MiB" in complaints[-1]


class Reader:
    """What a test's file readers have been given."""

    def __init__(self, path: Path) -> None:
        self.name = path.name


def said(followed: GrowingFiles[Reader]) -> list[tuple[str, bytes]]:
    return [(reader.name, fresh) for reader, fresh in followed.poll()]


def test_files_are_followed_through_rotation_truncation_and_removal(tmp_path: Path) -> None:
    folder = tmp_path / "nccl"
    followed = GrowingFiles(folder, Reader)
    assert said(followed) == []
    folder.mkdir()
    one, two = folder / "rank0", folder / "rank1"
    one.write_bytes(b"a\n")
    two.write_bytes(b"b")
    (folder / ".hidden").write_bytes(b"no")
    (folder / "sub").mkdir()
    assert said(followed) == [("rank0", b"a\n"), ("rank1", b"b")]
    assert said(followed) == []
    # Rotated: what was added last under the old name counts, and so does the new file.
    with one.open("ab") as file:
        file.write(b"c\n")
    one.rename(tmp_path / "rank0.1")
    one.write_bytes(b"d\n")
    assert said(followed) == [("rank0", b"c\n"), ("rank0", b"d\n")]
    # Cut short: from the start again.
    two.write_bytes(b"")
    assert said(followed) == []
    two.write_bytes(b"e\n")
    assert said(followed) == [("rank1", b"e\n")]
    with two.open("ab") as file:
        file.write(b"f\n")
    two.unlink()
    assert said(followed) == [("rank1", b"f\n")]
    followed.close()


def test_of_a_long_history_only_the_end_counts(tmp_path: Path) -> None:
    file = tmp_path / "record"
    file.write_bytes(b"".join(b"%07d\n" % n for n in range(1_000_000)))
    followed = GrowingFiles(file, Reader)
    first = said(followed)[0][1]
    assert 400_000 < int(first[:7]) < 500_000
    followed.close()


# -- the observed profile


@settings(max_examples=40, deadline=None)
@given(st.integers(80, 900), st.floats(0.15, 0.7), st.integers(0, 2**32))
def test_iterations_are_as_long_as_they_were(period: int, part: float, seed: int) -> None:
    draw, at, busy, truth = Random(seed), 10**15, [], []
    up = int(period * part) * MS
    for _ in range(20):
        busy += [
            CommunicationInterval(at, at + up // 2, 10**7),
            CommunicationInterval(at + up // 2, at + up, 10**7),
        ]
        truth.append(at)
        at += int(period * MS * draw.uniform(0.95, 1.05))
    found = find_profile(busy)
    if found is None:
        # Too short a record for its period.
        assert 20 * period * 2 < 2_000 or period * 4 > 2_000
        return
    assert found.period_ns == pytest.approx(period * MS, rel=0.06)
    seen = iterations(busy, found, truth[2] - MS, at - 10 * MS, begins=False)
    assert len(seen) >= 15
    for iteration in seen:
        start = min(truth, key=lambda t: abs(t - iteration.start_ns))
        assert abs(start - iteration.start_ns) <= period * MS / 100
        after = truth[truth.index(start) + 1]
        assert abs(after - iteration.end_ns) <= period * MS / 100
        assert iteration.size == pytest.approx(2 * 10**7, rel=0.1)


def sampled(
    draw: Random, until_ms: float, *, period_ms: float, missing: float
) -> list[CommunicationInterval]:
    """What readings of a counter every 10 ms show of bursts every `period_ms`. Readings are late, and some very
    late. Bursts begin late, some are missing, and some are rounds of TCP that are 40 to 50 ms apart."""
    sends: list[tuple[float, float]] = []
    late_ms, apart_ms, in_rounds = (
        draw.choice([0, 5, 30]),
        draw.uniform(40, 50),
        draw.choice([0, 0.3, 0.7, 1]),
    )
    at = draw.uniform(0, period_ms)
    while at < until_ms:
        begin, rounds = at + draw.uniform(0, late_ms), draw.randint(2, 4)
        lasts_ms = draw.uniform(70, 160)
        at += period_ms
        if draw.random() < missing:
            continue
        if draw.random() < in_rounds:
            times = [begin + number * apart_ms + k for number in range(rounds) for k in range(4)]
        else:
            times = [begin + lasts_ms * k / 15 for k in range(15)]
        sends += [(t, 60_000 / len(times)) for t in times]
    sends.sort(reverse=True)
    found, last, due, hiccups = [], 0.0, 0, draw.choice([0, 0.02, 0.05])
    while due < until_ms:
        now = due + (draw.uniform(30, 300) if draw.random() < hiccups else draw.expovariate(1.0))
        size = 0.0
        while sends and sends[-1][0] <= now:
            size += sends.pop()[1]
        if size:
            found.append(CommunicationInterval(int(last * MS), int(now * MS), round(size)))
        last = now
        due = (int(now) // 10 + 1) * 10
    return found


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0, 0.05, 0.1]))
def test_the_rounds_within_bursts_are_no_period(seed: int, missing: float) -> None:
    """Only the bursts' period is believed, once or twice: two in turn may look alike."""
    busy = sampled(Random(seed), 30_000, period_ms=500, missing=missing)
    believed = BelievedProfile()
    for look_ms in range(2_000, 30_000, 2_000):
        believed.found(find_profile([b for b in busy if b.end_ns <= look_ms * MS]))
        if believed.profile is not None:
            periods = believed.profile.period_ns / (500 * MS)
            assert periods == pytest.approx(round(periods), abs=0.1)
            assert round(periods) in (1, 2)


def test_one_round_after_another_in_a_long_burst_is_believed_only_until_the_burst_ends() -> None:
    """A job of 8 s sends for 5 s, in rounds that are 44 ms apart."""
    busy = [
        CommunicationInterval(at * MS, (at + 10) * MS, 10_000)
        for begin in range(0, 80_000, 8_000)
        for at in range(begin, begin + 5_000, 44)
    ]
    believed, seen = BelievedProfile(), []
    for look_ms in range(2_000, 80_000, 2_000):
        believed.found(find_profile([b for b in busy if b.end_ns <= look_ms * MS]))
        seen.append(believed.profile.period_ns / MS if believed.profile is not None else 0)
    assert seen[-1] == pytest.approx(8_000, rel=0.05)
    changes = [after for before, after in pairwise(seen) if after != before]
    assert len(changes) <= 2


def test_a_new_period_is_believed_and_one_that_is_seen_once_is_not() -> None:
    one, other = (ObservedProfile(t * MS, ((0, t * MS // 4),), 1.0) for t in (500, 300))
    believed = BelievedProfile()
    assert [believed.found(p) for p in (one, other, None, one, one, one)] == [False] * 5 + [True]
    assert not believed.doubted
    assert [believed.found(p) for p in (other, one, other, other, None)] == [False] * 5
    assert believed.doubted
    assert believed.profile == one
    assert believed.found(other)
    assert believed.profile == other


def test_a_job_that_never_pauses_has_no_iterations_to_tell() -> None:
    profile = ObservedProfile(100 * MS, ((0, 100 * MS),), 1.0)
    assert (
        iterations([CommunicationInterval(0, 10_000 * MS, 10**9)], profile, 0, 10_000 * MS, begins=True) == []
    )


# -- real agents

ROUGHLY = 0.25
"""How far a period may be off. The tests above are exact; here a busy machine delays samples and writers."""


@contextmanager
def writing(step: Callable[[int], None], interval_s: float) -> Iterator[None]:
    """Call `step(now)` so often in a thread of its own."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(interval_s):
            step(time.monotonic_ns())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def inspector_line(end_ns: int, length_ns: int, size: int) -> bytes:
    line = {
        "header": {"id": "0x1", "rank": 0},
        "metadata": {"dump_timestamp_us": end_ns // 1000},
        "coll_perf": {
            "coll": "AllReduce",
            "coll_msg_size_bytes": size,
            "coll_exec_time_us": length_ns // 1000,
        },
    }
    return json.dumps(line).encode() + b"\n"


class Ranks:
    """Two ranks' files of a job of 200 ms, Up for the first 80: written as time passes, in halves of lines.

    The clock of the record is another than the host's.
    """

    PERIOD, UP = 200 * MS, 80 * MS

    def __init__(self, folder: Path) -> None:
        self.files = [folder / "rank0.log", folder / "rank1.log"]
        self._begun = time.monotonic_ns()
        self._due = [self._begun, self._begun]
        self._rest = [b"", b""]

    def step(self, now: int) -> None:
        for rank, file in enumerate(self.files):
            text = self._rest[rank]
            while self._due[rank] + self.UP <= now:
                begin = self._due[rank]
                for part in range(4):
                    end = begin + (part + 1) * self.UP // 4
                    text += inspector_line(end + 10**18, self.UP // 4, 1 << 20)
                self._due[rank] += self.PERIOD
            cut = len(text) * 2 // 3 if text != self._rest[rank] else len(text)
            with file.open("ab") as sink:
                sink.write(text[:cut])
            self._rest[rank] = text[cut:]


def check_reports(made: Hub, name: str, period_ns: int) -> None:
    reports = eventually(
        lambda: r if len(r := [i for i in made.bodies("iteration") if i.job == name]) >= 8 else None,
        "iterations reported",
    )
    assert [r.index for r in reports] == list(range(len(reports)))
    for before, after in pairwise(reports):
        assert before.end_ns <= after.start_ns
    assert median(r.end_ns - r.start_ns for r in reports) == pytest.approx(period_ns, rel=ROUGHLY)


def test_a_job_is_followed_by_its_ranks_files(
    hub: tuple[Hub, str], start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    made, address = hub
    folder = tmp_path / "nccl"
    folder.mkdir()
    (folder / "junk").write_bytes(b"\x00\xffno record\n{}\n")
    ranks = Ranks(folder)
    more = f'[[sources.jobs]]\nname = "quiet"\nhosts = ["h1", "h2"]\nrecord = "{folder}"\ngpus = 16\n'
    with writing(ranks.step, 0.02):
        agent = start_agent(
            config_text(
                "h1", ADDRESSES["h1"], controller=address, addresses=ADDRESSES, agent='socket = ""',
                nic='driver = "none"', more=more,
            )
        )  # fmt: skip
        (join,) = eventually(lambda: made.bodies("job_join"), "the job joins")
        assert (join.job, join.gpus, list(join.hosts), join.rank) == ("quiet", 16, ["h1", "h2"], 0)
        assert join.period_ns == pytest.approx(ranks.PERIOD, rel=ROUGHLY)
        assert [f.name for f in join.flows] == ["quiet/h1>h2", "quiet/h2>h1"]
        ((start, end),) = [(p.start_ns, p.end_ns) for p in join.phases]
        assert end - start == pytest.approx(ranks.UP, rel=2 * ROUGHLY)
        # Rotated in the middle of it.
        ranks.files[0].rename(tmp_path / "rank0.log.1")
        check_reports(made, "quiet", ranks.PERIOD)
    assert agent.stop() == 0
    assert [leave.job for leave in made.bodies("job_leave")] == ["quiet"]
    assert agent.says("junk: ")


def test_a_job_is_followed_by_the_nics_counters(
    hub: tuple[Hub, str], start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    made, address = hub
    counters = tmp_path / "mlx5_0" / "ports" / "1" / "counters"
    counters.mkdir(parents=True)
    counter = counters / "port_xmit_data"
    begun, period, up, words_per_ns = time.monotonic_ns(), 300 * MS, 120 * MS, 0.5

    def step(now: int) -> None:
        whole, part = divmod(now - begun, period)
        fresh = counter.with_name("fresh")
        fresh.write_text(f"{int((whole * up + min(part, up)) * words_per_ns)}\n")
        fresh.rename(counter)

    step(begun)
    more = f'[sources]\nsysfs = "{tmp_path}"\n[[sources.jobs]]\nname = "counted"\nhosts = ["h1", "h2"]\n'
    with writing(step, 0.004):
        start_agent(
            config_text(
                "h1", ADDRESSES["h1"], controller=address, addresses=ADDRESSES, agent='socket = ""',
                nic='driver = "none"\ndevice = "mlx5_0"', more=more,
            )
        )  # fmt: skip
        (join,) = eventually(lambda: made.bodies("job_join"), "the job joins")
        assert join.period_ns == pytest.approx(period, rel=ROUGHLY)
        # What goes on the wire in an iteration, of four octets a word.
        assert join.flows[0].bytes_per_iteration == pytest.approx(up * words_per_ns * 4, rel=2 * ROUGHLY)
        check_reports(made, "counted", period)


SENDER = """
import socket, sys, time
period, up, size, gap = 0.3, 0.1, 1024, 0.001
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
begun = time.monotonic()
while True:
    part = (time.monotonic() - begun) % period
    if part < up:
        out.sendto(bytes(size), (sys.argv[1], 4791))
        time.sleep(gap)
    else:
        time.sleep(period - part)
"""


@needs_namespaces
def test_a_sender_that_never_says_a_word_is_followed_by_its_interfaces_bytes(
    start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    """A process of its own sends over a real interface, and knows nothing of agents. The agent finds its period."""
    made = Hub()
    space = f"pf{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", space], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"namespaces cannot be made here: {done.stderr.strip()}")
    inside = ("ip", "netns", "exec", space)
    server, address = serve_hub(made, f"unix:{tmp_path}/hub.sock")
    try:
        for words in (
            "link add eth0 type veth peer name far0",
            "addr add 198.18.9.1/30 dev eth0",
            "link set far0 up",
            "link set eth0 up",
            "neigh add 198.18.9.2 lladdr 02:00:00:00:00:02 dev eth0",
        ):
            subprocess.run(["ip", "-n", space, *words.split()], check=True)
        sender = subprocess.Popen([*inside, sys.executable, "-c", SENDER, "198.18.9.2"])
        try:
            text = config_text(
                "h1", "198.18.9.1", controller=address, addresses={"h2": "198.18.9.2"}, agent='socket = ""',
                nic='driver = "none"\ninterface = "eth0"',
                more='[[sources.jobs]]\nname = "mute"\nhosts = ["h1", "h2"]\n',
            )  # fmt: skip
            start_agent(text, prefix=inside)
            (join,) = eventually(lambda: made.bodies("job_join"), "the job joins")
            assert (join.job, list(join.hosts)) == ("mute", ["h1", "h2"])
            assert join.period_ns == pytest.approx(300 * MS, rel=ROUGHLY)
            eventually(lambda: len(made.bodies("iteration")) >= 3, "iterations are reported")
        finally:
            sender.kill()
            sender.wait()
    finally:
        server.stop(grace=0).wait()
        subprocess.run(["ip", "netns", "del", space], check=False)


@pytest.mark.parametrize(
    ("job", "complaint"),
    [
        ('name = "a"\nhosts = ["h2"]\nrecord = "x"', "sources.jobs[0].hosts: h1 is not among h2"),
        (
            'name = "a/b"\nhosts = ["h1"]\nrecord = "x"',
            "sources.jobs[0].name: 'a/b' is wrong; legal: a name of its own",
        ),
        (
            'name = "a"\nhosts = ["h1"]',
            "sources.jobs[0].record: missing; legal: a record, connections, or counters",
        ),
        (
            'name = "a"\nhosts = ["h1"]\nrecord = "x"\n[[sources.jobs]]\nname = "a"\nhosts = ["h1"]\nrecord = "y"',
            "sources.jobs[1].name: 'a'",
        ),
        (
            'name = "a"\nhosts = ["h1", "h2"]\nrecord = "x"\nring = [["h1", "h9"]]',
            "ring[0]: h1>h9 joins no two hosts of the job; legal: h1, h2",
        ),
        (
            'name = "a"\nhosts = ["h1"]\nrecord = "x"\nsample_ms = 0',
            "sample_ms: 0 is wrong; legal: a number from 1 to 1000",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(job: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(config_text("h1", "10.0.0.1", nic="", more=f"[[sources.jobs]]\n{job}"))
    done = command("check", "--config", str(file))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert complaint in done.stderr
