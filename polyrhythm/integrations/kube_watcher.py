# SPDX-License-Identifier: Apache-2.0
"""Keeps the controller's jobs equal to the training jobs of a Kubernetes cluster."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from polyrhythm.integrations.description import DescriptionError
from polyrhythm.integrations.kube_api import KubeApi, WatchOverError
from polyrhythm.integrations.kubernetes import FRAMEWORKS, PREFIX, Pod, job_of, pod_of
from polyrhythm.rest_client import CallError, all_pages

log = logging.getLogger("polyrhythm.kubernetes")

SETTLE_S = 2.0
"""A job whose pods have not changed for this long is declared. Chosen: a gang's pods are bound within it."""
AGAIN_S = 5.0
"""After a failure of the API or of the controller, it is tried again. Chosen."""
_PAUSE_S = 0.2
Call = Callable[..., Any]
"""`rest_client.call` of one controller: (path, body, method=)."""


@dataclass(slots=True)
class KubeJobs:
    """The living pods, and what the controller was told about their jobs. Knows no socket and no clock."""

    hosts: Mapping[str, str]
    _pods: dict[str, dict[str, Pod]] = field(default_factory=dict)
    """By label and uid."""
    _changed: dict[str, float] = field(default_factory=dict)
    _refused: dict[str, object] = field(default_factory=dict)
    declared: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The hosts of each job that the controller has, of this watcher."""

    @property
    def listed(self) -> bool:
        """Whether the pods of every framework are known, so that a job without pods is over."""
        return len(self._pods) == len(FRAMEWORKS)

    def replace(self, label: str, given: list[dict[str, Any]], now: float) -> None:
        """All pods with a label, from a list."""
        old = self._pods.get(label, {})
        new = {pod.uid: pod for pod in map(pod_of, given) if pod is not None}
        self._pods[label] = new
        for uid in old.keys() | new.keys():
            if old.get(uid) != new.get(uid):
                self._touch((new.get(uid) or old[uid]).job, now)

    def change(self, label: str, kind: str, given: dict[str, Any], now: float) -> None:
        """One pod, from a watch."""
        uid = str((given.get("metadata") or {}).get("uid"))
        pod = None if kind == "DELETED" else pod_of(given)
        pods = self._pods[label]
        if pods.get(uid) == pod:
            return
        self._touch((pod or pods[uid]).job, now)
        if pod is None:
            del pods[uid]
        else:
            pods[uid] = pod

    def wanted(self, now: float) -> tuple[list[dict[str, Any]], list[str], float]:
        """The jobs to declare, those to end, and the time until the next look.

        A job with other hosts than it was declared with is in both.
        """
        of_job: dict[str, list[Pod]] = {}
        for pods in self._pods.values():
            for pod in pods.values():
                of_job.setdefault(pod.job, []).append(pod)
        for over in self._changed.keys() - of_job.keys():
            del self._changed[over]
            self._refused.pop(over, None)
        declare: list[dict[str, Any]] = []
        end = [name for name in self.declared if name not in of_job]
        wait = AGAIN_S
        for name, pods_of in of_job.items():
            left = self._changed.get(name, now) + SETTLE_S - now
            if left > 0:
                wait = min(wait, left)
                continue
            try:
                body = job_of(name, pods_of, self.hosts)
            except DescriptionError as error:
                self.refused(name, str(error), str(error))
                continue
            if body is None or self._refused.get(name) == body:
                continue
            if name in self.declared:
                if self.declared[name] == tuple(body["hosts"]):
                    continue
                end.append(name)
            declare.append(body)
        return declare, end, wait

    def refused(self, name: str, what: object, why: str) -> None:
        """Remember that a job cannot be declared as it is, and say so once."""
        if self._refused.get(name) != what:
            log.warning("job %s: not declared: %s", name, why)
        self._refused[name] = what

    def _touch(self, job: str, now: float) -> None:
        self._changed[job] = now
        self._refused.pop(job, None)


class KubeWatcher:
    """Watches the pods of all frameworks, each in a thread of its own, and tells the controller."""

    def __init__(self, api: KubeApi, call: Call, hosts: Mapping[str, str]) -> None:
        self._api, self._call = api, call
        self._jobs = KubeJobs(hosts)
        self._inbox: queue.SimpleQueue[Callable[[float], None]] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._adopted = False

    def end(self) -> None:
        """Let `run` return. The jobs stay declared."""
        self._ended.set()
        self._inbox.put(lambda now: None)

    def run(self) -> None:
        """Watch until `end`."""
        for label in FRAMEWORKS:
            threading.Thread(target=self._watch, args=(label,), daemon=True).start()
        wait = AGAIN_S
        while not self._ended.is_set():
            try:
                self._inbox.get(timeout=wait)(time.monotonic())
                while not self._inbox.empty():
                    self._inbox.get()(time.monotonic())
            except queue.Empty:
                pass
            wait = self._tell() if self._jobs.listed and not self._ended.is_set() else AGAIN_S

    def _tell(self) -> float:
        """Make the controller's jobs those of the cluster. Returns the time until the next look."""
        try:
            if not self._adopted:
                found = all_pages(self._call, "jobs")["jobs"]
                ours = {job["name"]: tuple(job["hosts"]) for job in found if job["name"].startswith(PREFIX)}
                self._jobs.declared = ours
                self._adopted = True
            declare, end, wait = self._jobs.wanted(time.monotonic())
            for name in end:
                self._end(name)
            for body in declare:
                self._declare(body)
        except CallError as error:
            # The controller may have lost its jobs, so it is asked for them again.
            self._adopted = False
            log.warning("the controller: %s; trying again", error)
            return AGAIN_S
        return wait

    def _declare(self, body: dict[str, Any]) -> None:
        try:
            self._call("jobs", body, method="POST")
        except CallError as error:
            if error.code == 1:
                raise
            self._jobs.refused(body["name"], body, str(error))
            return
        self._jobs.declared[body["name"]] = tuple(body["hosts"])
        log.info("job %s: declared on %d hosts", body["name"], len(body["hosts"]))

    def _end(self, name: str) -> None:
        try:
            self._call(f"jobs/{name}", method="DELETE")
        except CallError as error:
            if error.status != 404:
                raise
        self._jobs.declared.pop(name, None)
        log.info("job %s: ended", name)

    def _watch(self, label: str) -> None:
        """Put all changes of a label's pods into the inbox."""
        while not self._ended.is_set():
            try:
                pods, version = self._api.pods(label)
                self._inbox.put(lambda now, pods=pods: self._jobs.replace(label, pods, now))  # type: ignore[misc]
                while not self._ended.is_set():
                    for kind, pod in self._api.changes(label, version):
                        version = str((pod.get("metadata") or {}).get("resourceVersion", version))
                        if kind != "BOOKMARK":
                            self._inbox.put(
                                lambda now, kind=kind, pod=pod: self._jobs.change(label, kind, pod, now)  # type: ignore[misc]
                            )
                    # A server that ends each watch at once is not asked all the time.
                    self._ended.wait(_PAUSE_S)
            except WatchOverError:
                continue
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                # Also an answer that is not the API's.
                log.warning("the Kubernetes API: %s: %s; trying again", label, error)
                self._ended.wait(AGAIN_S)
