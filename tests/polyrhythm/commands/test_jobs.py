# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm jobs submit`: a refused job is named with its place in the file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from polyrhythm.cli import main

FAULTS = [
    {"where": "body.phases.0.end_ms", "what": "Field required"},
    {"where": "body.gpus", "what": "Input should be a valid integer"},
]
FILE = """\
jobs:
  - name: a
    hosts: [h1]
  - name: {name}
    phases:
      - start_ms: 0
"""


class Controller(BaseHTTPRequestHandler):
    """Takes job a, finds faults in job b, and knows job c already."""

    def do_POST(self) -> None:
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = {
            "a": (201, {**job, "flows": []}),
            "b": (
                422,
                {"detail": "body.phases.0.end_ms: Field required, and 1 more fault", "faults": FAULTS},
            ),
            "c": (409, {"detail": "job c is there already"}),
        }[job["name"]]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Controller)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("b", "6: jobs[1].phases[0].end_ms: Field required, and 1 more fault"),
        ("c", "4: jobs[1]: the controller answers 409: job c is there already"),
    ],
)
def test_a_refused_job_is_named_with_its_place_and_with_what_was_declared(
    name: str, said: str, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(FILE.format(name=name))
    assert main(["jobs", "submit", str(file), "--controller", address]) == 2
    assert capsys.readouterr().err == f"polyrhythm jobs submit: {file}:{said}; declared before it: a\n"
