# SPDX-License-Identifier: Apache-2.0
"""Emulated jobs in agent.toml that say what they are, instead of when which flow sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostagent.config import Config, load_config
from hostagent.job import JobSpec
from polyrhythm_files import ConfigError

HEAD = '[agent]\nhost = "a.1"\nip = "10.0.0.1"\n[nic]\ndriver = "udp"\nrate_mbps = 108.2\nmtu = 1000\n'
FOUR = 'name = "j"\nhosts = ["a.1", "a.2", "b.1", "b.2"]\nrails = 2\n'


def read(folder: Path, job: str) -> tuple[Config, JobSpec]:
    file = folder / "agent.toml"
    file.write_text(f"{HEAD}[[training.jobs]]\n{job}")
    config = load_config(file)
    return config, config.training.jobs[0].spec(config.payload_bps)


def test_flows_and_phases_follow_from_traffic(tmp_path: Path) -> None:
    """Two servers of two NICs and four GPUs: tensor parallelism inside a server, rings on each rail."""
    traffic = (
        "traffic = { parallelism = { tensor = 2, data = 2 }, data_bytes = 1_000_000, queue_pairs = 2 }\n"
    )
    config, spec = read(tmp_path, FOUR + traffic + "compute_ns = 5_000_000\n")
    # 58 bytes of headers around 1,000 of payload.
    assert config.payload_bps == int(108.2e6 * 1000 / 1058)
    rails = {("a.1", "b.1"), ("b.1", "a.1"), ("a.2", "b.2"), ("b.2", "a.2")}
    assert set(spec.ring) == rails
    assert len(spec.ring) == 2 * len(rails)
    assert len({name for name, _, _ in spec.flows()}) == 8
    # A ring of two carries 2 (n - 1) / n of the bytes, over two queue pairs.
    (phase,) = spec.phases
    assert phase.bytes_per_flow == 500_000
    assert phase.up_ns == pytest.approx(8e9 * 1_000_000 / config.payload_bps, rel=1e-6)
    assert phase.down_ns == 5_000_000
    assert spec.gpus == 4


def test_exchanges_come_before_the_reduction(tmp_path: Path) -> None:
    traffic = (
        "traffic = { parallelism = { pipeline = 2, data = 2, order = 'tensor-pipeline-data' }, "
        "data_bytes = 1000, pipeline_bytes = 4000, exchanges = 2 }\n"
    )
    hosts = 'name = "j"\nhosts = ["a.1", "b.1", "c.1", "d.1"]\n'
    _, spec = read(tmp_path, hosts + traffic + "compute_ns = 10\n")
    assert [p.down_ns for p in spec.phases] == [5, 5, 0]
    carried = spec.flow_bytes()
    assert sum(carried.values()) == 4 * 4000 + 4 * 1000


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("traffic = { data_bytes = 10 }\nring = [['a.1', 'b.1']]\n", "ring and phases follow from traffic"),
        (
            "traffic = { data_bytes = 10 }\nphases = [{up_ns = 1, bytes_per_flow = 1, down_ns = 1}]\n",
            "ring and phases follow from traffic; legal: one of both",
        ),
        ("traffic = { data_bytes = 0 }\n", "job j: traffic: the job sends nothing over the fabric"),
        (
            "traffic = { data_bytes = 10, parallelism = { tensor = 3 } }\n",
            "tensor 3 x pipeline 1 x data 1 are 3 GPUs",
        ),
        ("gpus = 5\ntraffic = { data_bytes = 10 }\n", "5 GPUs on 2 hosts are not the same number on each"),
        ("compute_ns = 7\n", "compute_ns without traffic; legal: with traffic only"),
        ("", "rails without traffic; legal: with traffic only"),
    ],
)
def test_what_is_refused_in_one_line(tmp_path: Path, more: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, FOUR + more)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_host_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="each host once"):
        read(tmp_path, 'name = "j"\nhosts = ["a.1", "a.1"]\ntraffic = { data_bytes = 10 }\n')


def test_rails_divide_the_hosts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="4 hosts, 3 rails"):
        read(tmp_path, FOUR.replace("rails = 2", "rails = 3") + "traffic = { data_bytes = 10 }\n")
