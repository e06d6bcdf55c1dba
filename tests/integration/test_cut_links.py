# SPDX-License-Identifier: Apache-2.0
"""A live embedded fabric by requests: a cable is cut and mended, flows move away and back, and what if."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control_rig import eventually

from polyrhythm.run.session import FabricSession, SessionSpec

PATIENCE_S = 300
SCENARIO = """
name: two
about: one job over two spines
fabric: {kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 1, host_gbps: 50, fabric_gbps: 50}
profile: declared
jobs:
  - {name: x, model: VGG19, gpus: 2, hosts: [h1, h2], period_ms: 260,
     phases: [{start_ms: 0, end_ms: 60, gbps: 50}]}
"""


class Api:
    """Requests to a controller, and what its stream has said so far of cables."""

    def __init__(self, web: str) -> None:
        self._url = f"{web.rstrip('/')}/api/v1/"
        self.emulated: bool | None = None
        self.cables: dict[str, Any] = {}
        threading.Thread(target=self._follow, daemon=True).start()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def path(self) -> list[str] | None:
        _, answer = self.ask("GET", "flows?job=x")
        found = [flow["path"] for flow in answer.get("flows", ()) if flow["flow"] == "x/h1>h2"]
        return found[0] if found else None

    def sent(self, src: str, dst: str) -> int:
        """The bytes that a switch has sent to another one."""
        _, fabric = self.ask("GET", f"fabric/links?node={src}")
        port = next(x["src_port"] for x in fabric["links"] if (x["src"], x["dst"]) == (src, dst))
        _, counters = self.ask("GET", f"counters?switch={src}")
        return sum(q["bytes"] for q in counters["counters"] if q["port"] == port)

    def _follow(self) -> None:
        event = ""
        with urllib.request.urlopen(self._url + "stream", timeout=PATIENCE_S) as stream:
            for raw in stream:
                key, _, value = raw.decode().rstrip("\n").partition(": ")
                if key == "event":
                    event = value
                if key == "data":
                    self._take(event, json.loads(value))

    def _take(self, event: str, data: Any) -> None:
        if event == "keyframe":
            self.emulated = data["fabric"]["emulated"]
            self.cables = dict(data["tables"]["cables"])
            return
        for name in data.get("gone", {}).get("cables", ()):
            del self.cables[name]
        for name, fields in data.get("set", {}).get("cables", {}).items():
            self.cables[name] = {**self.cables.get(name, {}), **fields}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    scenario = tmp_path / "two.yaml"
    scenario.write_text(SCENARIO)
    spec = SessionSpec(scenario, "polyrhythm", "together", 1, tmp_path / "run", pace=1.0, forever=True)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_S)

    session = FabricSession(spec)
    try:
        run(session.start())
        yield Api(session.web)
    finally:
        run(session.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.slow
def test_cut_reroutes_and_mend_restores(api: Api) -> None:
    eventually(api.path, "the flow has a path")
    eventually(lambda: api.emulated, "the stream says that cables can be cut")
    first = api.path()[2]
    other = "spine2" if first == "spine1" else "spine1"
    cable = f"leaf1-{first}"

    assert api.ask("PUT", f"fabric/links/{cable}/cut") == (200, {"name": cable, "cables": [cable]})
    assert api.ask("GET", "fabric/cuts") == (200, {"cuts": [{"name": cable}]})
    eventually(lambda: api.cables.get(cable, {}).get("up") is False, "the stream shows the link down")
    eventually(lambda: api.path() == ["h1", "leaf1", other, "leaf2", "h2"], "the flow is re-routed")
    before = api.sent("leaf1", other)
    eventually(lambda: api.sent("leaf1", other) > before + 10_000, "its bytes take the other spine")

    assert api.ask("DELETE", f"fabric/links/{cable}/cut") == (204, None)
    eventually(lambda: cable not in api.cables, "the stream shows the link up")
    # Only the mended cable is left.
    assert api.ask("PUT", f"fabric/links/leaf1-{other}/cut")[0] == 200
    eventually(
        lambda: api.path() == ["h1", "leaf1", first, "leaf2", "h2"], "the flow is back on the mended cable"
    )
    before = api.sent("leaf1", first)
    eventually(lambda: api.sent("leaf1", first) > before + 10_000, "bytes flow over the mended cable")

    # The simulator knows the fabric as it is now.
    status, answer = api.ask("POST", "what-if", {"policies": ["polyrhythm"]})
    assert (status, answer["left_out"]) == (200, [])
    (result,) = answer["results"]
    assert (result["policy"], result["fault"], result["worst"]["job"]) == ("polyrhythm", None, "x")
    assert result["jobs"][0]["alone_ms"] == pytest.approx(260, rel=0.05)

    assert api.ask("DELETE", f"fabric/links/{cable}/cut")[0] == 404
    assert api.ask("PUT", "fabric/links/h1-leaf1/cut")[0] == 404
