# SPDX-License-Identifier: Apache-2.0
"""Period and phases from NCCL's output and from counters, on files in the formats NCCL and sysfs have."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from agent_rig import command, config_text
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hostagent.phases import fold
from hostagent.records import CommunicationInterval, read_record

RECORDED = Path(__file__).parents[1] / "data" / "recorded"
MS = 1_000_000


@pytest.mark.parametrize(
    ("name", "period_ms", "phases_ms"),
    [
        ("inspector.jsonl", 260, [(0, 40), (60, 120)]),
        ("profiler_trace.json", 180, [(0, 75)]),
        ("port_xmit_data.csv", 300, [(0, 138)]),
    ],
)
def test_recorded_files(name: str, period_ms: float, phases_ms: list[tuple[float, float]]) -> None:
    """The files were made by `record_phases.py` from these figures, with jitter."""
    done = command("profile", str(RECORDED / name))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["period_ms"] == pytest.approx(period_ms, rel=0.02)
    assert len(found["phases_ms"]) == len(phases_ms)
    for seen, wanted in zip(found["phases_ms"], phases_ms, strict=True):
        assert seen == pytest.approx(wanted, abs=12)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@example(period=20, part=0.5, iterations=7, seed=26643)
@given(st.integers(20, 400), st.floats(0.1, 0.7), st.integers(6, 30), st.integers(0, 2**32))
def test_any_period_is_found(period: int, part: float, iterations: int, seed: int) -> None:
    draw, at, busy = Random(seed), 0, []
    up = max(1, int(period * part))
    for _ in range(iterations):
        busy.append(CommunicationInterval(at, at + up * MS, 10**7))
        at += int(period * MS * draw.uniform(0.99, 1.01))
    found = fold(busy)
    assert found.period_ns == pytest.approx(period * MS, rel=0.03)
    assert len(found.phases) == 1
    assert found.phases[0][1] == pytest.approx(up * MS, abs=0.05 * period * MS)


def test_noise_has_no_period() -> None:
    draw = Random(5)
    times = sorted(draw.sample(range(10_000), 60))
    with pytest.raises(ValueError, match="no period"):
        fold([CommunicationInterval(t * MS, (t + 1) * MS, draw.randrange(10**6)) for t in times])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "at least two intervals"),
        ("1,2\nx\n", "line 2 is not time_ns,value"),
        ("5,2\n5,3\n", "line 2: time does not advance"),
        ('{"header": 1}\n{"coll_perf": {"coll": "AllReduce"}}\n', "line 2 is not a line of NCCL's inspector"),
        ('[{"name": "AllReduce", "ph": ', "not a trace of NCCL's profiler"),
        ("1,1\n2,5\n3,9\n4,13\n", "no period"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "record"
    file.write_text(text)
    done = command("profile", str(file))
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_other_half_of_a_cut_trace_is_read() -> None:
    text = (RECORDED / "profiler_trace.json").read_text()
    whole = read_record(text)
    cut = read_record(text[: text.rindex("},") + 2])
    assert len(whole) - 1 <= len(cut) <= len(whole)


def test_the_environment_of_a_job(tmp_path: Path) -> None:
    shim = tmp_path / "shim.so"
    shim.touch()
    file = tmp_path / "agent.toml"
    more = f'[nccl]\nshim = "{shim}"\nqps_per_connection = 4\ngid_index = 3\ninspector = "/opt/i n.so"\n'
    nic = 'driver = "shim"\ndevice = "mlx5_2"'
    file.write_text(config_text("h1", "10.0.0.1", agent=f'socket = "{tmp_path}/none"', nic=nic, more=more))
    done = command("env", "llama", "--config", str(file))
    said = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert said["NCCL_IB_TC"] == str(26 << 2)
    assert (said["NCCL_IB_QPS_PER_CONNECTION"], said["NCCL_IB_SPLIT_DATA_ON_QPS"]) == ("4", "1")
    assert (said["NCCL_IB_HCA"], said["NCCL_IB_GID_INDEX"]) == ("=mlx5_2:1", "3")
    assert said["NCCL_IBVERBS_LIB"] == str(shim)
    assert said["NCCL_INSPECTOR_ENABLE"] == "1"
    exported = command("env", "llama", "--export", "--config", str(file)).stdout
    assert "export NCCL_PROFILER_PLUGIN='/opt/i n.so'\n" in exported
    refused = command("env", "a/b", "--config", str(file))
    assert (refused.returncode, "no name of a job" in refused.stderr) == (2, True)
