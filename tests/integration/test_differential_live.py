# SPDX-License-Identifier: Apache-2.0
"""The same workload over the same services into switch processes: BMv2's where it is installed, and ours."""

import shutil

import pytest
from diff_golden import P4INFO, PROGRAM, load, pipeline_config
from diff_replay import replay
from record_golden import BMV2, BURST, PACKETS_PER_ROUND, ROUNDS, SCENARIOS, record


@pytest.fixture(scope="module")
def config():
    return pipeline_config(P4INFO.read_text(), PROGRAM.read_text())


def test_our_process_answers_as_the_embedded_switch_in_process(config):
    """Also shows that the driver and the data-plane service lose and reorder nothing."""
    scenario = record(None, config, seed=101, rounds=2, packets=150)
    differences, counters = replay(config, scenario)
    assert not differences, differences[0]
    assert counters == scenario.counters
    assert sum(bool(answers) for part in scenario.rounds for answers in part.answers) > 50


def test_a_recorded_scenario_is_drawn_again_from_its_seed(config):
    from diff_workload import Workload

    recorded = load()
    if recorded.config != config:
        pytest.skip("the recording is of another program")
    scenario = recorded.scenarios[SCENARIOS - 1]
    workload = Workload(scenario.seed, config.p4info)
    for number, part in enumerate(scenario.rounds):
        assert (workload.changes() if number else workload.setup()) == part.updates
        assert workload.packets(len(part.packets)) == part.packets


@pytest.mark.skipif(
    shutil.which(BMV2) is None, reason=f"{BMV2} is not on PATH; the recording stands in for it"
)
def test_bmv2_and_the_embedded_switch_agree_on_fresh_packets(config):
    scenario = record(BMV2, config, seed=202, rounds=2, packets=600)
    differences, counters = replay(config, scenario)
    assert not differences, "\n".join([f"{len(differences)} packets differ", *differences[:5]])
    assert counters == scenario.counters


@pytest.mark.skipif(
    shutil.which(BMV2) is None, reason=f"{BMV2} is not on PATH; the recording stands in for it"
)
def test_bursts_leave_bmv2_and_the_embedded_switch_in_the_same_order(config):
    scenario = record(BMV2, config, seed=203, rounds=1, packets=800, burst=BURST)
    differences, counters = replay(config, scenario)
    assert not differences, differences[0]
    assert counters == scenario.counters


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which(BMV2) is None, reason=f"{BMV2} is not on PATH; the recording stands in for it"
)
def test_bmv2_and_the_embedded_switch_agree_on_ten_thousand_fresh_packets(config):
    packets = 0
    for seed in range(301, 301 + SCENARIOS):
        scenario = record(BMV2, config, seed, ROUNDS, PACKETS_PER_ROUND)
        differences, counters = replay(config, scenario)
        assert not differences, "\n".join([f"{len(differences)} packets differ", *differences[:5]])
        assert counters == scenario.counters
        packets += sum(len(part.packets) for part in scenario.rounds)
    assert packets >= 10_000
