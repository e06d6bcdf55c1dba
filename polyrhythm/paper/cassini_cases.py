# SPDX-License-Identifier: Apache-2.0
"""The jobs of Tables 3.1 and 4.3 of the CASSINI thesis, as scenarios for the embedded fabric.

The thesis prints times and scores, but no profiles. Here Up phases use the whole 50 Gbit/s, except in
snapshot 2, where ResNet50 overlaps with both other jobs (section 4.5.5).

Table 4.3: the lengths of the Up phases are the communication times under Th+CASSINI. The periods are ours. In
snapshots 1 and 2 they leave room for all jobs. In snapshots 3 to 5 they are chosen such that the best score
is the printed one; so the score confirms nothing there, but the packets do.

Table 3.1: the periods of a compatible group are its iteration times under unfairness, and an Up phase is the
time that fair sharing adds. The profiles of the groups that are not compatible are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RATE_GBPS = 50.0
ECN = {"kmin": 10, "kmax": 40}
"""A marking ramp with which MLTCP interleaves the jobs. Every method of sharing gets the same ramp."""

GREED = (0.64, 0.8, 1.0)
"""DCQCN's increase timers for unfairness, in the order of a group: each a fifth shorter than the next
(section 3.2: 100 against 125 us)."""


@dataclass(frozen=True, slots=True)
class CaseJob:
    """A job that sends for `up_ms` at `gbps` in every `period_ms`.

    `fair_ms` and `better_ms` are the two times of the thesis: the communication times under Themis and
    Th+CASSINI (Table 4.3), or the iteration times under fair and unfair sharing (Table 3.1). `shift_ms` is
    its time-shift in the thesis.
    """

    model: str
    period_ms: float
    up_ms: float
    fair_ms: float
    better_ms: float
    shift_ms: float | None = None
    gbps: float = RATE_GBPS

    @property
    def gain(self) -> float:
        """How much shorter the thesis' time became, as a ratio."""
        return self.fair_ms / self.better_ms


@dataclass(frozen=True, slots=True)
class CassiniCase:
    """A row of a table: the jobs on one link, and the results of the thesis."""

    name: str
    table: str
    jobs: tuple[CaseJob, ...]
    score: float | None = None
    compatible: bool | None = None

    def names(self) -> list[str]:
        """A name for each job, as the scenario has it."""
        models = [job.model.split(" ")[0].lower() for job in self.jobs]
        return [f"{m}-{i + 1}" if models.count(m) > 1 else m for i, m in enumerate(models)]


def scenario(case: CassiniCase, iterations: int, *, unfair: bool = False) -> Mapping[str, Any]:
    """The content of a scenario file: one pair of hosts for each job, and one link for all."""
    count = len(case.jobs)
    jobs = [
        {
            "name": name,
            "model": job.model,
            "gpus": 2,
            "hosts": [f"h{i + 1}", f"h{count + i + 1}"],
            "period_ms": job.period_ms,
            "phases": [{"start_ms": 0, "end_ms": job.up_ms, "gbps": job.gbps}],
            "increase_timer": GREED[i - count] if unfair else 1.0,
        }
        for i, (name, job) in enumerate(zip(case.names(), case.jobs, strict=True))
    ]
    fabric = {
        "kind": "leaf_spine",
        "leaves": 2,
        "spines": 1,
        "hosts_per_leaf": count,
        "host_gbps": RATE_GBPS,
        "fabric_gbps": RATE_GBPS,
    }
    return {"name": case.name, "fabric": fabric, "ecn": ECN, "iterations": iterations, "jobs": jobs}


SNAPSHOTS = (
    CassiniCase(
        "snapshot-1",
        "4.3",
        (
            CaseJob("WideResNet101 (800)", 300, 138, 206, 138, 0),
            CaseJob("VGG16 (1400)", 300, 148, 199, 148, 150),
        ),
        score=1.0,
    ),
    CassiniCase(
        "snapshot-2",
        "4.3",
        (
            CaseJob("VGG19 (1400)", 340, 168, 220, 168, 0, gbps=42.0),
            CaseJob("VGG16 (1700)", 340, 163, 220, 163, 158, gbps=42.0),
            CaseJob("ResNet50 (1600)", 170, 59, 55, 59, 46, gbps=8.0),
        ),
        score=1.0,
    ),
    CassiniCase(
        "snapshot-3",
        "4.3",
        (CaseJob("VGG19 (1024)", 304, 166, 176, 166, 0), CaseJob("VGG16 (1200)", 304, 168, 177, 168, 100)),
        score=0.9,
    ),
    CassiniCase(
        "snapshot-4",
        "4.3",
        (CaseJob("RoBERTa (12)", 287, 164, 210, 164, 0), CaseJob("RoBERTa (12)", 287, 180, 208, 180, 60)),
        score=0.8,
    ),
    CassiniCase(
        "snapshot-5",
        "4.3",
        (
            CaseJob("BERT (8)", 548, 209, 213, 209, 0),
            CaseJob("VGG19 (1400)", 548, 294, 292, 294, 42),
            CaseJob("WideResNet101 (800)", 548, 265, 266, 265, 191),
        ),
        score=0.6,
    ),
)

GROUPS = (
    CassiniCase(
        "bert-vgg19",
        "3.1",
        (CaseJob("BERT (8)", 150, 90, 183, 157), CaseJob("VGG19 (1200)", 250, 130, 297, 315)),
        compatible=False,
    ),
    CassiniCase(
        "dlrm-dlrm",
        "3.1",
        (CaseJob("DLRM (2000)", 1001, 300, 1301, 1001), CaseJob("DLRM (2000)", 1001, 300, 1300, 1019)),
        compatible=True,
    ),
    CassiniCase(
        "bert-vgg19-wideresnet",
        "3.1",
        (
            CaseJob("BERT (8)", 210, 110, 320, 216),
            CaseJob("VGG19 (1400)", 330, 160, 494, 466),
            CaseJob("WideResNet (800)", 310, 140, 466, 505),
        ),
        compatible=False,
    ),
    CassiniCase(
        "wideresnet-vgg16",
        "3.1",
        (CaseJob("WideResNet (800)", 273, 22, 295, 273), CaseJob("VGG16 (1400)", 273, 22, 294, 274)),
        compatible=True,
    ),
    CassiniCase(
        "vgg19-vgg16-resnet50",
        "3.1",
        (
            CaseJob("VGG19 (1400)", 330, 60, 389, 329),
            CaseJob("VGG16 (1700)", 330, 60, 389, 329),
            CaseJob("ResNet50 (1600)", 165, 2, 167, 165),
        ),
        compatible=True,
    ),
)
