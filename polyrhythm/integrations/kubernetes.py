# SPDX-License-Identifier: Apache-2.0
"""Training jobs of Kubernetes, from their pods.

They are of JobSet (also Kubeflow Trainer 2), of Kubeflow's training operator, or of Volcano.

A job is the pods with the same label. It is declared once each of its pods has a node, and is over when none
of them runs or is to run. An annotation of any pod may describe its traffic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from polyrhythm.integrations.description import job_body

PREFIX = "k8s."
"""Begins the name of every job that this watcher declares; its namespace and its name follow."""
ANNOTATION = "polyrhythm/job"
"""The annotation of a pod with a job's description, as JSON."""
FRAMEWORKS = {
    "jobset.sigs.k8s.io/jobset-name": (
        "jobset.sigs.k8s.io/replicatedjob-name",
        "jobset.sigs.k8s.io/job-index",
        "batch.kubernetes.io/job-completion-index",
    ),
    "training.kubeflow.org/job-name": (
        "training.kubeflow.org/replica-type",
        "training.kubeflow.org/replica-index",
    ),
    "volcano.sh/job-name": ("volcano.sh/task-spec", "volcano.sh/task-index"),
}
"""The label that names a pod's job, and those that order its pods by rank (numbers by value)."""
_ALIVE = ("Pending", "Running")
_FIRST = ("master", "launcher", "leader", "chief")
"""Replica types that hold rank 0, before `worker`."""
_GPUS = re.compile(r".+/(gpu|mig-.+)")


@dataclass(frozen=True, slots=True)
class Pod:
    """What matters of a pod. `node` empty: it has none yet."""

    uid: str
    job: str
    rank: tuple[tuple[int, int, str], ...]
    node: str
    gpus: int
    said: str


def pod_of(given: Mapping[str, Any]) -> Pod | None:
    """A pod of the API that is part of a job and lives; None: any other."""
    metadata, spec = given.get("metadata") or {}, given.get("spec") or {}
    labels = metadata.get("labels") or {}
    label = next((name for name in FRAMEWORKS if labels.get(name)), None)
    phase = (given.get("status") or {}).get("phase")
    if label is None or phase not in _ALIVE or metadata.get("deletionTimestamp"):
        return None
    return Pod(
        uid=str(metadata.get("uid")),
        job=f"{PREFIX}{metadata.get('namespace', 'default')}.{labels[label]}",
        rank=tuple(_rank(str(labels.get(name, ""))) for name in FRAMEWORKS[label]),
        node=str(spec.get("nodeName") or ""),
        gpus=sum(_gpus(container) for container in spec.get("containers") or []),
        said=str((metadata.get("annotations") or {}).get(ANNOTATION, "")),
    )


def job_of(name: str, pods: Iterable[Pod], hosts: Mapping[str, str]) -> dict[str, Any] | None:
    """The body that declares a job; None: a pod has no node yet, or nothing is sent between hosts.

    `hosts` gives nodes their names in the fabric; others keep theirs.

    Raises:
        DescriptionError: the annotation is no description.
    """
    ranked = sorted(pods, key=lambda pod: (pod.rank, pod.uid))
    if not ranked or not all(pod.node for pod in ranked):
        return None
    said = next((pod.said for pod in ranked if pod.said), "")
    names = [hosts.get(pod.node, pod.node) for pod in ranked]
    return job_body(
        name, names, sum(pod.gpus for pod in ranked), said, f"{name}: the annotation {ANNOTATION}"
    )


def _rank(label: str) -> tuple[int, int, str]:
    if label.isdecimal():
        return 0, int(label), ""
    return (0 if label.lower() in _FIRST else 1), 0, label


def _gpus(container: Mapping[str, Any]) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return sum(int(n) for name, n in limits.items() if _GPUS.fullmatch(name) and str(n).isdecimal())
