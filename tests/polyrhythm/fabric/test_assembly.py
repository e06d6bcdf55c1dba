# SPDX-License-Identifier: Apache-2.0
"""The emulated NICs of an embedded fabric."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.roce import overhead_bytes
from polyrhythm.fabric.assembly import EmbeddedFabric
from polyrhythm.scenario import load_scenario, scenario_path

UNEVEN = """
name: uneven
about: NICs of several rates; no job uses the fastest
scale: 1000
fabric:
  kind: explicit
  switches: [{name: leaf1, tier: leaf}]
  hosts:
    - {name: h1, leaf: leaf1, gbps: 25}
    - {name: h2, leaf: leaf1, gbps: 100}
    - {name: h3, leaf: leaf1, gbps: 50}
    - {name: other, leaf: leaf1, gbps: 400}
  links: []
jobs:
  - name: job
    model: m
    gpus: 2
    hosts: [h1, h2]
    period_ms: 100
    phases: [{start_ms: 0, end_ms: 50, gbps: 25}]
"""


def profiles(file: Path) -> set[DcqcnProfile]:
    fabric = EmbeddedFabric(load_scenario(file), 1)
    try:
        return {host.nic.profile for host in fabric.hosts.values()}
    finally:
        fabric.close()


def test_all_nics_of_a_fabric_have_one_dcqcn_profile(tmp_path: Path) -> None:
    file = tmp_path / "uneven.yaml"
    file.write_text(UNEVEN)
    (profile,) = profiles(file)
    assert profile.additive_bps == 100e6 / 25
    assert profile.retransmit_ns > 160 * 8e9 * 1024 / 25e6
    assert profile.min_rate_bps == 25e6 / 50


@pytest.mark.parametrize("name", ["two_vgg19", "tenant_attack"])
def test_where_all_jobs_have_nics_of_one_rate_it_is_the_profile_of_that_rate(name: str) -> None:
    file = scenario_path(name)
    scenario = load_scenario(file)
    host = scenario.topology.host[scenario.workloads[0].job.hosts[0]]
    frame = scenario.packet_bytes + overhead_bytes(host.ip)
    assert profiles(file) == {DcqcnProfile.scaled(host.rate_bps, frame)}
