# SPDX-License-Identifier: Apache-2.0
"""Polyrhythm's library for training code: it connects a training job with the host agent of its host.

Pure Python, standard library only. The agent uses the same modules for its side of the protocol.
"""

from polyrhythm_job.job import polyrhythm_job
from polyrhythm_job.pcie import PcieLink
from polyrhythm_job.protocol import DEFAULT_SOCKET, NO_LEVEL, FlowPlacement
from polyrhythm_job.verbs import Verbs, VerbsError

__all__ = [
    "DEFAULT_SOCKET",
    "NO_LEVEL",
    "FlowPlacement",
    "PcieLink",
    "Verbs",
    "VerbsError",
    "polyrhythm_job",
]
