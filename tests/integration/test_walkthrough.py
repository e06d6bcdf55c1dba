# SPDX-License-Identifier: Apache-2.0
"""docs/walkthrough.md, command by command: a fabric by hand in network namespaces."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from agent_rig import ROOT

GUIDE = ROOT / "docs" / "walkthrough.md"
FOLDER = Path("/tmp/polyrhythm-walk")
SPACES = ("walk-fab", "walk-h1", "walk-h2")
TIMEOUT_S = 300
BLOCK = re.compile(r"<!-- (not run|file): ([^\n]*?) -->\n```(\w+)\n(.*?)```\n", re.S)


def script() -> str:
    """All commands of the guide as one script. A file of the guide is written where it comes."""
    parts = ["set -eu -o pipefail"]
    for number, (mark, value, _, text) in enumerate(BLOCK.findall(GUIDE.read_text(encoding="utf-8"))):
        commands = f"cat > {value} <<'END-OF-FILE'\n{text}END-OF-FILE\n" if mark == "file" else text
        parts.append(f"echo 'block {number}'\n{commands}")
    return "\n".join(parts)


def answers(said: str, begin: str) -> list[dict[str, Any]]:
    """The JSON answers in an output that begin with `begin`; curl ends no line after them."""
    decoder = json.JSONDecoder()
    return [decoder.raw_decode(said, match.start())[0] for match in re.finditer(re.escape(begin), said)]


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No namespace, process or folder of the guide stays, also if it fails half way."""
    if os.getuid() or any(shutil.which(tool) is None for tool in ("ip", "ethtool", "openssl", "curl")):
        pytest.skip("needs root, iproute2, ethtool, openssl and curl")
    done = subprocess.run(["ip", "netns", "add", SPACES[0]], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs network namespaces: {done.stderr.strip()}")
    subprocess.run(["ip", "netns", "del", SPACES[0]], check=True)
    yield
    for space in SPACES:
        found = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
        for pid in found.stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
    shutil.rmtree(FOLDER, ignore_errors=True)


# The agent's doctor measures how exactly the host knows fabric time: on a busy machine it finds a problem.
@pytest.mark.slow
@pytest.mark.alone
def test_every_command_of_the_guide_works(nothing_left: None) -> None:
    place = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", script()],
        capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
        env={**os.environ, "PATH": f"{place}:{os.environ['PATH']}"},
    )  # fmt: skip
    logs = "\n".join(f"{p.name}: {p.read_text()[-1500:]}" for p in sorted(FOLDER.glob("*.log")))
    said = done.stdout
    assert done.returncode == 0, f"{said[-3000:]}\n{done.stderr[-3000:]}\n{logs}"
    assert said.count("a legal fabric file") == 1
    assert said.count("a legal agent file") == 2
    # Before the agents: both are named. After them: ready.
    first = answers(said, '{"ready":false')[0]
    assert {"h1", "h2"} <= {n["name"] for n in first["not_ready"] if n["part"] == "agent"}
    before, after = (a for a in answers(said, '{"time_ns":') if "jobs" in a and "policy" not in a)
    for answer in (before, after):
        assert [j["name"] for j in answer["jobs"]] == ["vgg"]
    assert said.count("0 problems; ") == 2
    assert "problem  switches      1 of 3 switches do not answer: spine1" in said
    assert "doctor says 1" in said
    assert not FOLDER.exists()


def test_the_fabric_file_of_the_guide_has_every_key() -> None:
    (text,) = [
        text for mark, _, _, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8")) if mark == "file"
    ]
    shown = yaml.safe_load(text)
    schema = json.loads((ROOT / "docs" / "schemas" / "fabric.json").read_text(encoding="utf-8"))

    def keys(name: str) -> set[str]:
        return set(schema["$defs"][name]["properties"])

    top = schema["properties"] if "properties" in schema else schema["$defs"]["FabricFile"]["properties"]
    assert set(shown) == set(top)
    assert set(shown["tls"]) == keys("TlsFile")
    assert set(shown["ecn"]) == keys("EcnFile")
    assert set(shown["switches"]["leaf1"]) == keys("SwitchFile")
