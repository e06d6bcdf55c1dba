# SPDX-License-Identifier: Apache-2.0
"""Scenario files: what a person writes, checked, and turned into an emulated fabric and its jobs."""

from polyrhythm.scenario.build import ALONE_ITERATIONS, ALONE_WARMUP, Scenario, Workload
from polyrhythm.scenario.config import LARGEST_SCALE
from polyrhythm.scenario.load import load_placements, load_scenario, scenario_path, write_on
from polyrhythm.scenario.patterns import ROCE_OVERHEAD_BYTES, SendStep, Steps

__all__ = [
    "ALONE_ITERATIONS",
    "ALONE_WARMUP",
    "LARGEST_SCALE",
    "ROCE_OVERHEAD_BYTES",
    "Scenario",
    "SendStep",
    "Steps",
    "Workload",
    "load_placements",
    "load_scenario",
    "scenario_path",
    "write_on",
]
