# SPDX-License-Identifier: Apache-2.0
"""Readers of published traces, on small files, and their error messages for bad files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.cluster import machines
from sim.generators import batch, poisson, snapshot
from sim.network import Network
from sim.readers import (
    TraceError,
    read_lingjun_jobs,
    read_model_mix,
    read_philly,
    read_sensetime,
    read_snapshot,
)
from sim.workload import WorkloadError, check_connected, read_trace
from topo.generate import leaf_spine

PHILLY = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,iteration_time\n"
SNAPSHOT = "job_id,model,gmt_job_running,gmt_job_finished,total_gpu\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def written(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


def test_philly(write: Callable[[str, str], Path]) -> None:
    path = write("t.csv", PHILLY + "0,16,1500,1000,vgg16,16,90000,332\n7,1,0,5,dqn,64,10,500.5\n")
    first, second = read_philly(path)
    assert (first.name, first.gpus, first.arrival_ns, first.iterations) == ("job-0", 16, 1_500_000_000, 1000)
    assert first.shape.compute_ns == 332_000_000
    assert first.shape.phases[0].size == 4 * 138e6
    assert second.shape.compute_ns == 500_500_000


def test_sensetime(write: Callable[[str, str], Path]) -> None:
    job = {
        "job_id": "396689", "model": "ResNet50", "total_iterations": "1000", "time_per_iteration": "0.5",
        "max_parallelism": "4", "arrival_time": "12.5",
    }  # fmt: skip
    (request,) = read_sensetime(write("s.json", json.dumps([job])))
    # The wall time alone is duration / GPUs.
    assert (request.gpus, request.iterations, request.arrival_ns) == (4, 250, 12_500_000_000)
    assert request.shape.compute_ns == 500_000_000


def test_lingjun(write: Callable[[str, str], Path]) -> None:
    jobs = read_snapshot(write("snap.csv", SNAPSHOT + "1,llama,2023/7/27 08:50,2023/7/27 09:50,80\n"))
    assert [(j.gpus, j.iterations, j.arrival_ns) for j in jobs] == [(80, 2400, 0)]
    weeks = read_lingjun_jobs(
        write(
            "job.csv",
            "job_name,model,gmt_job_running,gmt_job_finished\n"
            "x,ResNet,2023-08-01 00:00:00,2023-08-01 01:00:00\ny,DLM,2023-08-01 00:10:00,2023-08-01 01:00:00\n"
            "idle,DLM,2023-08-01 00:10:00,2023-08-01 01:00:00\n",
        ),
        write(
            "worker.csv", 'job_name,host_ip,RES\nx,a,"cpu=9,gpu=8"\nx,b,"cpu=9,gpu=8"\ny,a,4\nidle,a,gpu=0\n'
        ),
    )
    assert [(j.name, j.gpus, j.arrival_ns) for j in weeks] == [("job-x", 16, 0), ("job-y", 4, 600 * 10**9)]
    mix = read_model_mix(write("m.csv", "model,total_gpu\nDLM,256\nResNet,0\n"), 5, 1, horizon_s=60, hours=1)
    assert [j.gpus for j in mix] == [256] * 5


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "job_id,num_gpu\n1,2\n", r"row 1: no column submit_time, iterations"),
        ("t.csv", PHILLY + "0,16,-5,1000,vgg16,16,9,332\n", r"row 2, column submit_time: -5 is out of range"),
        ("t.csv", PHILLY + "0,x,0,1000,vgg16,16,9,332\n", r"row 2, column num_gpu: 'x' is no number"),
        ("t.csv", PHILLY + "0,1_0,0,1000,vgg16,16,9,332\n", r"row 2, column num_gpu: '1_0' is no number"),
        ("t.csv", PHILLY + "0,1.5,0,1000,vgg16,16,9,332\n", r"column num_gpu: 1.5 is no whole number"),
        ("t.csv", PHILLY + f"0,{'9' * 999},0,1000,vgg16,16,9,332\n", r"column num_gpu: 9{60} is out of range"),
        ("t.csv", PHILLY + f"0,{'x' * 999},0,1000,vgg16,16,9,332\n", r"column num_gpu: 'x{59} is no number"),
        ("t.csv", PHILLY + "0,1,0,nan,vgg16,16,9,332\n", r"column iterations: 'nan' is no number"),
        ("t.csv", PHILLY + "0,1\n", r"row 2, column model_name: is empty"),
        ("t.csv", PHILLY + "0,1,0,1,a,1,1,1\n0,1,0,1,a,1,1,1\n", r"row 3, column job_id: 0 is listed twice"),
        ("t.csv", PHILLY, r"it holds no jobs"),
        ("t.csv", "a,b\n", r"row 1: of no known kind"),
        ("t.csv", SNAPSHOT + "1,m,2023/7/2 08:50,2023/7/1 08:50,8\n", r"column gmt_job_finished: is not after"),
        ("t.json", "{", r"row 1: not JSON"),
        ("t.json", "{}", r"a list of jobs is needed"),
        ("t.json", '[{"job_id": 1}]', r"row 1, column model: is missing"),
        (
            "t.json",
            '[{"job_id": 1, "model": null, "total_iterations": 5, "time_per_iteration": 1, "max_parallelism": 1}]',
            r"row 1, column model: is empty",
        ),
        ("t.json", "[3]", r"row 1: a job is an object"),
    ],
)  # fmt: skip
def test_a_bad_trace_names_row_and_column(
    write: Callable[[str, str], Path], name: str, text: str, message: str
) -> None:
    cluster = machines(Network(leaf_spine(2, 1, 2, host_bps=10, fabric_bps=10)), 8)
    with pytest.raises(TraceError, match=message):
        read_trace(str(write(name, text)), cluster, 1, 1.0)


def test_a_missing_file_and_a_fabric_in_two_parts_are_told() -> None:
    cluster = machines(Network(leaf_spine(2, 0, 2, host_bps=10, fabric_bps=10)), 8)
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace("nowhere.csv", cluster, 1, 1.0)
    with pytest.raises(WorkloadError, match="no way from leaf1 to leaf2"):
        check_connected(cluster.network.topology)
    with pytest.raises(WorkloadError, match="a number of jobs is needed"):
        read_trace("poisson:x", cluster, 1, 1.0)
    with pytest.raises(WorkloadError, match="no MODEL/RING"):
        read_trace("paper:BLOOM", cluster, 1, 1.0)
    with pytest.raises(WorkloadError, match="'LLM' is no model of the routing paper"):
        read_trace("paper:LLM/2", cluster, 1, 1.0)


def test_generators_keep_to_their_word() -> None:
    jobs = poisson(2000, 3, gpus=512, horizon_s=86_400.0, load=0.7)
    assert jobs == poisson(2000, 3, gpus=512, horizon_s=86_400.0, load=0.7)
    assert jobs != poisson(2000, 4, gpus=512, horizon_s=86_400.0, load=0.7)
    work = sum(j.gpus * j.iterations * j.shape.compute_ns / 1e9 for j in jobs)
    assert work == pytest.approx(0.7 * 512 * 86_400.0, rel=0.01)
    assert 0.9 * 86_400e9 < jobs[-1].arrival_ns < 1.1 * 86_400e9
    assert {j.arrival_ns for j in batch(20, 1, gpus=64)} == {0}
    at_once = snapshot(20, 1, gpus=64)
    assert len(at_once) <= 20
    assert 0 < sum(j.gpus for j in at_once) <= 64


def test_a_device_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.readers.errors.MAX_FILE_BYTES", 1 << 20)
    with pytest.raises(TraceError, match="/dev/zero: larger than 1 MiB"):
        read_philly(Path("/dev/zero"))


@pytest.mark.parametrize("text", ["[" * 100_000, '[{"job_id": ' + "9" * 6000 + "}]"], ids=["deep", "long"])
def test_json_that_python_refuses_is_told_in_one_line(text: str, write: Callable[[str, str], Path]) -> None:
    with pytest.raises(TraceError, match=r"s\.json: .*legal: ") as told:
        read_sensetime(write("s.json", text))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("count", ["1²", "9" * 5000, "-1", ""])
def test_a_generator_needs_a_number_of_jobs(count: str) -> None:
    cluster = machines(Network(leaf_spine(2, 1, 2, host_bps=10**9, fabric_bps=10**9)), 8)
    with pytest.raises(WorkloadError, match="a number of jobs is needed; legal: 1 to 1000000"):
        read_trace(f"poisson:{count}", cluster, 1, 1.0)
