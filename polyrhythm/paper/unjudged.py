# SPDX-License-Identifier: Apache-2.0
"""The default policy without its judge, which compares the plans of rivals with its own."""

from __future__ import annotations

from dataclasses import replace

from controller.planner.builtin import POLYRHYTHM

UNJUDGED = replace(POLYRHYTHM, name="polyrhythm-unjudged", joint_search=False, max_slowdown=None)
"""The default policy's paths, levels and time-shifts, one after the other, and no floor: the judge
keeps that."""
LABEL = (
    "polyrhythm judges the plans of routing, crux, taccl, sincronia and varys beside its own and takes the "
    "best; polyrhythm-unjudged is the same without that, and without the floor"
)
"""What a report says where the default policy is compared with those rivals."""
