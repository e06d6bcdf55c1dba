# SPDX-License-Identifier: Apache-2.0
"""Every kind of file: its published schema, its three formats, and what damaged files are answered."""

from __future__ import annotations

import copy
import json
import random
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.northbound.tokens import load_tokens
from controller.process.config import load_fabric
from hostagent.config import load_config
from polyrhythm.file_kinds import FILE_KINDS, check_file, kind_of
from polyrhythm.interleave_file import load_interleave_task
from polyrhythm.jobs_file import load_jobs
from polyrhythm.placement_file import load_placement_task
from polyrhythm.priority_file import load_priority_task
from polyrhythm.scenario import load_scenario
from polyrhythm.sweep.file import load_sweep
from polyrhythm_files import ConfigError, read_document
from topo.files import is_foreign, load_topology
from topo.generate import leaf_spine
from topo.jsonio import topology_to_json

ROOT = Path(__file__).parents[2]
SHIPPED = [*sorted((ROOT / "polyrhythm" / "scenarios").glob("*.yaml")), ROOT / "deploy" / "agent.toml"]
FABRIC = leaf_spine(2, 1, 2, host_bps=10**9, fabric_bps=10**9)
PHASES = [{"start_ms": 0, "end_ms": 12.5, "gbps": 40}]
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "scenario": [
        yaml.safe_load((ROOT / "polyrhythm" / "scenarios" / "two_vgg19.yaml").read_text()),
        {
            "name": "x",
            "fabric": {
                "kind": "explicit",
                "switches": [{"name": "a", "tier": "leaf"}],
                "hosts": [{"name": f"h{i}", "leaf": "a", "gbps": 40} for i in (1, 2)],
            },
            "ecn": {"kmin": 5, "kmax": 50},
            "nics": {"chooses_ports": True, "hosts": ["h1"]},
            "jobs": [
                {
                    "name": "j",
                    "model": "m",
                    "gpus": 2,
                    "hosts": ["h1", "h2"],
                    "period_ms": 100,
                    "phases": PHASES,
                    "pcie": {"link": "g", "gbps": 50},
                    "changes": [{"iteration": 3, "period_ms": 90, "phases": PHASES}],
                }
            ],
        },
    ],
    "topology": [
        {
            "kind": "leaf_spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 2, "host_gbps": 50, "fabric_gbps": 50.5,
            "hash": {"algorithm": "crc16", "slices": [0, 4, 8]},
        },
        {
            "kind": "explicit",
            "switches": [{"name": "a", "tier": "leaf"}, {"name": "s", "tier": "spine"}],
            "hosts": [{"name": "h", "leaf": "a", "gbps": 40}],
            "links": [{"a": "a", "b": "s", "gbps": 100}],
            "hash": "unknown",
        },
        topology_to_json(FABRIC),
        {
            "hosts": {"h1": {"mac": "08:00:00:00:01:11"}, "h2": {}},
            "switches": {"s1": {}},
            "links": [["h1", "s1-p1"], ["h2", "s1-p2", "0", 0.5]],
        },
    ],
    "fabric": [
        {
            "name": "x",
            "clock": "embedded",
            "control_delay_ns": 1,
            "topology": topology_to_json(FABRIC),
            "switches": {
                s.name: {"address": f"127.0.0.1:{9000 + s.device_id}", "device_id": s.device_id} for s in FABRIC.switches
            },
            "ecn": {"kmin": 5, "kmax": 50, "pmax": 0.1},
        }
    ],
    "agent": [
        tomllib.loads((ROOT / "deploy" / "agent.toml").read_text()),
        {
            "agent": {"host": "h1", "ip": "10.0.0.1"},
            "nic": {"driver": "udp", "mtu": 512},
            "hosts": {"h2": "10.0.0.2"},
            "training": {
                "jobs": [
                    {
                        "name": "a",
                        "hosts": ["h1", "h2"],
                        "phases": [{"up_ns": 5, "bytes_per_flow": 1000, "down_ns": 5}],
                        "ring": [["h1", "h2"]],
                    }
                ]
            },
        },
    ],
    "interleave": [
        {
            "links": [{"name": "l", "gbps": 50, "jobs": ["a", "b"]}],
            "jobs": [{"name": n, "period_ms": 40, "phases": PHASES} for n in "ab"],
            "step_deg": 5,
        }
    ],
    "jobs": [
        {
            "jobs": [
                {
                    "name": "j",
                    "gpus": 4,
                    "hosts": ["h1", "h2"],
                    "traffic": {"parallelism": {"tensor": 2, "data": 2}, "data_bytes": 1e9, "queue_pairs": 2},
                }
            ]
        }
    ],
    "placement": [
        {"scenario": "two_vgg19", "job": "vgg19-a", "candidates": [["h1", "h2"], ["h2", "h4"]]},
        {"scenario": "two_vgg19", "job": "vgg19-b"},
    ],
    "priority": [
        {
            "links": {"l1": {"gbps": 100}},
            "jobs": [
                {"name": "a", "gpus": 8, "flops_per_iteration": 1e15, "compute_ms": 100, "bytes": {"l1": 1e9}}
            ],
        }
    ],
    "sweep": [
        {"traces": ["two_vgg19"], "policies": ["ecmp", "crux"]},
        {
            "traces": ["poisson:3", "batch:2"],
            "topologies": ["fabric.json"],
            "policies": ["ecmp"],
            "schedulers": ["fifo", "dally"],
            "seeds": [1, 2],
            "hours": 0.5,
            "lease_s": 60,
        },
    ],
    "tokens": [{"tokens": [{"name": "a", "role": "job", "sha256": "0" * 64, "expires": "2030-01-01T00:00:00Z"}]}],
}  # fmt: skip
ALL = [(kind, data) for kind, examples in EXAMPLES.items() for data in examples]
LOADERS = {
    "scenario": load_scenario,
    "topology": load_topology,
    "fabric": load_fabric,
    "agent": load_config,
    "interleave": load_interleave_task,
    "jobs": load_jobs,
    "placement": load_placement_task,
    "priority": load_priority_task,
    "sweep": load_sweep,
    "tokens": load_tokens,
}


def toml_of(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    return json.dumps(value)


def texts(data: dict[str, Any]) -> dict[str, str]:
    return {
        "json": json.dumps(data, indent=1),
        "yaml": yaml.safe_dump(data, sort_keys=False),
        "toml": "".join(f"{json.dumps(k)} = {toml_of(v)}\n" for k, v in data.items()),
    }


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_the_published_schema_is_that_of_the_reader(kind: str) -> None:
    """`polyrhythm config schema KIND > docs/schemas/KIND.json` makes it."""
    published = json.loads((ROOT / "docs" / "schemas" / f"{kind}.json").read_text(encoding="utf-8"))
    assert published == json.loads(json.dumps(FILE_KINDS[kind].schema()))
    jsonschema.Draft202012Validator.check_schema(published)


def assert_valid(kind: str, data: object) -> None:
    jsonschema.Draft202012Validator(FILE_KINDS[kind].schema()).validate(data)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_the_files_that_we_ship_are_legal(path: Path) -> None:
    kind = check_file(path)
    assert kind == ("agent" if path.suffix == ".toml" else "scenario")
    assert_valid(kind, read_document(path).value)


def test_the_examples_of_the_guides_are_legal(tmp_path: Path) -> None:
    found = []
    for guide in sorted((ROOT / "docs").glob("*.md")):
        fences = re.findall(
            r"^```(yaml|json|toml)\n(.*?)^```", guide.read_text(encoding="utf-8"), re.M | re.S
        )
        for i, (form, text) in enumerate(fences):
            path = tmp_path / f"{guide.stem}{i}.{form}"
            path.write_text(text, encoding="utf-8")
            try:
                kind = kind_of(path)
            except ConfigError:
                continue  # Not a whole file of ours.
            if kind in ("scenario", "topology", "interleave", "priority"):
                check_file(path, kind)
                value = read_document(path).value
                # The schema is of our own form.
                if not is_foreign(value):
                    assert_valid(kind, value)
                found.append(kind)
    assert found


@pytest.mark.parametrize(("kind", "data"), ALL, ids=lambda v: v if isinstance(v, str) else "")
def test_the_three_formats_of_a_file_give_the_same(kind: str, data: dict[str, Any], tmp_path: Path) -> None:
    assert_valid(kind, data)
    values = []
    for suffix, text in texts(data).items():
        path = tmp_path / f"file.{suffix}"
        path.write_text(text)
        assert kind_of(path) == kind
        values.append(LOADERS[kind](path))
    assert values[0] == values[1] == values[2]


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [place]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*place, key))
    return found


def assert_read_or_refused(kind: str, path: Path) -> None:
    message = f"{path}:1: "
    try:
        LOADERS[kind](path)
    except ConfigError as error:
        message = str(error)
    assert re.match(rf"{re.escape(str(path))}:\d+: ", message)
    assert "\n" not in message


ODD = [
    None,
    True,
    -1,
    0,
    1,
    10**30,
    0.5,
    -0.0,
    1e308,
    "",
    "h1",
    "x/y",
    "\n",
    [],
    {},
    [[]],
    {"kind": "x"},
    {"a": 1},
    "é",
]


@settings(max_examples=250, deadline=None)
@given(which=st.sampled_from(ALL), seed=st.integers(0, 2**32), form=st.sampled_from(["json", "yaml", "toml"]))
def test_a_damaged_file_is_read_or_refused_with_its_line(
    which: tuple[str, dict[str, Any]], seed: int, form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind, data = which[0], copy.deepcopy(which[1])
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 2)):
        *above, last = rng.choice(places(data)[1:])
        inner = data
        for key in above:
            inner = inner[key]
        action = rng.randrange(4)
        if action == 0:
            del inner[last]
        elif action == 1 and isinstance(inner, dict):
            inner[str(rng.choice(["nme", "x", "", "kind", "a b"]))] = inner.pop(last)
        else:
            inner[last] = copy.deepcopy(rng.choice(ODD if form != "toml" else ODD[1:]))
        if not data:
            break
    path = tmp_path_factory.mktemp("damaged") / f"file.{form}"
    path.write_text(texts(data)[form])
    assert_read_or_refused(kind, path)


@settings(max_examples=150, deadline=None)
@given(
    which=st.sampled_from(ALL),
    form=st.sampled_from(["json", "yaml", "toml"]),
    cut=st.floats(0, 1),
    noise=st.text(max_size=6),
)
def test_a_damaged_text_is_read_or_refused_with_its_line(
    which: tuple[str, dict[str, Any]],
    form: str,
    cut: float,
    noise: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    text = texts(which[1])[form]
    at = int(cut * len(text))
    path = tmp_path_factory.mktemp("damaged") / f"file.{form}"
    path.write_text(text[:at] + noise + text[at + len(noise) :], encoding="utf-8", errors="replace")
    assert_read_or_refused(which[0], path)
