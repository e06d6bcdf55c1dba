# SPDX-License-Identifier: Apache-2.0
"""Readers of published traces. Nothing is downloaded: each reader takes a file that the user has."""

from sim.readers.errors import TraceError
from sim.readers.lingjun import read_lingjun_jobs, read_model_mix, read_snapshot
from sim.readers.philly import read_philly
from sim.readers.sensetime import read_sensetime

__all__ = [
    "TraceError",
    "read_lingjun_jobs",
    "read_model_mix",
    "read_philly",
    "read_sensetime",
    "read_snapshot",
]
