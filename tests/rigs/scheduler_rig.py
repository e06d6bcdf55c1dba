# SPDX-License-Identifier: Apache-2.0
"""Servers on loopback that stand for the Kubernetes API and for a controller's REST API."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class FakeController:
    """Takes jobs as POST and DELETE of /api/v1/jobs do. `silent`: it holds each request until it is set."""

    url: str = ""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    refuse: dict[str, int] = field(default_factory=dict)
    answers: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)


@dataclass
class FakeKubeApi:
    """Pods by uid, and watches that get each change. A list comes in pages of two."""

    url: str = ""
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = 10
    watches: list[tuple[str, queue.SimpleQueue[Any]]] = field(default_factory=list)
    requests: list[dict[str, list[str]]] = field(default_factory=list)
    too_old: bool = False

    def send(self, kind: str, pod: dict[str, Any]) -> None:
        """Change a pod, and tell whoever watches its label."""
        self.version += 1
        pod = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self.version)}}
        if kind == "DELETED":
            self.pods.pop(pod["metadata"]["uid"], None)
        else:
            self.pods[pod["metadata"]["uid"]] = pod
        for label, events in list(self.watches):
            if label in pod["metadata"]["labels"]:
                events.put({"type": kind, "object": pod})

    def end_watches(self) -> None:
        """End all watches, as a server does after their time."""
        for _, events in self.watches:
            events.put(None)
        self.watches.clear()


@contextlib.contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server with this handler."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Quiet(BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass

    def answer(self, status: int, value: object = None) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def fake_controller(*, silent: bool = False) -> Iterator[FakeController]:
    """A controller that takes jobs."""
    fake = FakeController()
    if not silent:
        fake.answers.set()

    class Handler(_Quiet):
        def begun(self) -> str:
            length = int(self.headers.get("Content-Length") or 0)
            self.body = json.loads(self.rfile.read(length)) if length else None
            fake.asked.set()
            fake.answers.wait(30)
            fake.log.append(f"{self.command} {self.path}")
            return self.path.removeprefix("/api/v1/")

        def do_GET(self) -> None:
            path = self.begun()
            if path == "jobs":
                self.answer(200, {"jobs": list(fake.jobs.values())})
            else:
                name = path.split("/")[1]
                self.answer(200, fake.jobs[name]) if name in fake.jobs else self.answer(
                    404, {"detail": "no job"}
                )

        def do_POST(self) -> None:
            self.begun()
            name = self.body["name"]
            if name in fake.refuse:
                self.answer(fake.refuse[name], {"detail": f"job {name} cannot be"})
            elif name in fake.jobs:
                self.answer(409, {"detail": f"job {name} is there already"})
            else:
                fake.jobs[name] = self.body
                self.answer(201, self.body)

        def do_DELETE(self) -> None:
            name = self.begun().split("/")[1]
            self.answer(204 if fake.jobs.pop(name, None) else 404, None)

    with served(Handler) as fake.url:
        yield fake


@contextlib.contextmanager
def fake_kube_api() -> Iterator[FakeKubeApi]:
    """A Kubernetes API with pods."""
    fake = FakeKubeApi()

    class Handler(_Quiet):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            query = parse_qs(address.query)
            fake.requests.append(query)
            label = query["labelSelector"][0]
            if address.path != "/api/v1/pods":
                self.answer(404)
            elif "watch" in query:
                self.watch(label, int(query["resourceVersion"][0]))
            else:
                found = [p for p in fake.pods.values() if label in p["metadata"]["labels"]]
                first = int(query.get("continue", ["0"])[0])
                rest = {"continue": str(first + 2)} if len(found) > first + 2 else {}
                metadata = {"resourceVersion": str(fake.version), **rest}
                self.answer(200, {"kind": "PodList", "metadata": metadata, "items": found[first : first + 2]})

        def watch(self, label: str, version: int) -> None:
            if fake.too_old:
                fake.too_old = False
                self.answer(410, {"kind": "Status", "code": 410, "message": "too old resource version"})
                return
            events: queue.SimpleQueue[Any] = queue.SimpleQueue()
            for pod in fake.pods.values():
                if (
                    label in pod["metadata"]["labels"]
                    and int(pod["metadata"].get("resourceVersion", 0)) > version
                ):
                    events.put({"type": "MODIFIED", "object": pod})
            fake.watches.append((label, events))
            self.send_response(200)
            self.end_headers()
            while (event := events.get()) is not None:
                try:
                    self.wfile.write(json.dumps(event).encode() + b"\n")
                    self.wfile.flush()
                except OSError:
                    return

    with served(Handler) as fake.url:
        try:
            yield fake
        finally:
            fake.end_watches()


def pod(
    name: str,
    labels: dict[str, str],
    node: str = "",
    *,
    phase: str = "Pending",
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A pod of the API with 8 GPUs, with what its kubelet and controllers add left out."""
    return {
        "metadata": {
            "name": name, "namespace": "ml", "uid": f"uid-{name}", "labels": labels,
            "annotations": annotations or {},
        },
        "spec": {
            "containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8", "memory": "1Ti"}}}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": phase},
    }  # fmt: skip
