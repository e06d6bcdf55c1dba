# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm route` and `polyrhythm topo show`, checked from their output alone."""

from __future__ import annotations

import ipaddress
import json
import random
import struct
import subprocess
import sys
import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from polyrhythm.cli import main

LEAF_SPINE = {
    "kind": "leaf_spine", "leaves": 6, "spines": 4, "hosts_per_leaf": 4, "host_gbps": 100, "fabric_gbps": 100,
}  # fmt: skip
THREE_TIER = {
    "kind": "three_tier", "pods": 3, "leaves_per_pod": 2, "spines_per_pod": 2, "cores_per_spine": 2,
    "hosts_per_leaf": 2, "host_gbps": 100, "fabric_gbps": 100,
}  # fmt: skip
EXPLICIT = {
    "kind": "explicit",
    "switches": [{"name": n, "tier": t} for n, t in (("b", "spine"), ("x", "leaf"), ("y", "leaf"), ("a", "spine"))],
    "hosts": [{"name": n, "leaf": u, "gbps": 50} for n, u in (("p", "x"), ("q", "y"), ("r", "x"))],
    "links": [{"a": s, "b": u, "gbps": g} for s, u, g in (("a", "x", 100), ("x", "b", 40), ("b", "y", 40), ("y", "a", 100))],
}  # fmt: skip


def hosts_of(topology: dict) -> list[str]:
    if topology["kind"] == "explicit":
        return [h["name"] for h in topology["hosts"]]
    leaves = topology.get("leaves") or topology["pods"] * topology["leaves_per_pod"]
    return [f"h{i + 1}" for i in range(leaves * topology["hosts_per_leaf"])]


@pytest.fixture
def files(tmp_path: Path):
    def write(topology: dict, rows: list[str]) -> list[str]:
        (tmp_path / "t.json").write_text(json.dumps(topology))
        (tmp_path / "f.csv").write_text("\n".join(rows) + "\n")
        return ["--topology", str(tmp_path / "t.json"), "--flows", str(tmp_path / "f.csv")]

    return write


def next_switch(shown: dict, here: str, dst: dict, packet: bytes, failed: set[str]) -> str:
    """Where a switch sends a packet, from what `topo show` prints and nothing else."""
    ports = {}
    for link in shown["links"]:
        for end, other in (("a", "b"), ("b", "a")):
            if link[end] == here and not failed & {link[other], f"{link['a']}-{link['b']}"}:
                ports[link[f"{end}_port"]] = link[other]
    if dst["leaf"] in ports.values():
        return dst["leaf"]
    switches = {s["name"]: s for s in shown["switches"]}
    below = {
        s: {x for k in shown["links"] for x in (k["a"], k["b"]) if s in (k["a"], k["b"])} for s in switches
    }
    tiers = ["leaf", "spine", "core"]
    level = tiers.index(switches[here]["tier"])

    def descends(s: str) -> bool:
        lower = [x for x in below[s] if tiers.index(switches[x]["tier"]) < tiers.index(switches[s]["tier"])]
        alive = [x for x in lower if not failed & {x, f"{x}-{s}", f"{s}-{x}"}]
        return dst["leaf"] in alive or any(descends(x) for x in alive if switches[x]["tier"] != "leaf")

    up = [p for p, n in sorted(ports.items()) if tiers.index(switches[n]["tier"]) > level]
    down = [p for p, n in sorted(ports.items()) if tiers.index(switches[n]["tier"]) < level]
    ways = [p for p in down if switches[ports[p]]["tier"] != "leaf" and descends(ports[p])]
    # Only fabrics in which every upward neighbour that is alive leads there are routed upward here.
    ways = ways or [p for p in up if switches[ports[p]]["tier"] == "core" or descends(ports[p]) or level == 0]
    near = [p for p in ways if descends(ports[p])]
    ways = near or ways
    rule = switches[here]["hash"]
    assert rule["algorithm"] == "crc32"
    bucket = (zlib.crc32(packet) >> rule["slice"]["lsb"]) & ((1 << rule["slice"]["bits"]) - 1)
    assert [n for n in rule["order"] if n in ports.values()] == [ports[p] for p in up]
    return ports[ways[bucket % len(ways)]]


@pytest.mark.parametrize(
    "algorithm", ["greedy", "optimal", "ecmp", "annealing", "annealing-published", "auto"]
)
@pytest.mark.parametrize(
    ("topology", "failed"),
    [
        (LEAF_SPINE, ""),
        (LEAF_SPINE, "spine3"),
        (LEAF_SPINE, "leaf2-spine1"),
        (THREE_TIER, ""),
        (EXPLICIT, ""),
    ],
)
def test_the_printed_port_leads_along_the_printed_path(capsys, files, topology, failed, algorithm) -> None:
    names = hosts_of(topology)
    rng = random.Random(7)
    flows = [tuple(rng.sample(names, 2)) for _ in range(60)]
    given = files(topology, [",".join(f) for f in flows])
    code = main(["route", *given, "--algorithm", algorithm, "--fail", failed, "--json"])
    if algorithm == "optimal" and (failed == "leaf2-spine1" or topology is EXPLICIT):
        assert code == 2
        assert "auto" in capsys.readouterr().err
        return
    assert code == 0
    routed = json.loads(capsys.readouterr().out)
    assert main(["topo", "show", given[1], "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    hosts = {h["name"]: h for h in shown["hosts"]}
    load: Counter[tuple[str, str]] = Counter()
    seen = set()
    assert [(f["src"], f["dst"]) for f in routed["flows"]] == flows
    for flow in routed["flows"]:
        src, dst = hosts[flow["src"]], hosts[flow["dst"]]
        addresses = [int(ipaddress.ip_address(h["ip"])) for h in (src, dst)]
        packet = struct.pack("!IIBHH", *addresses, 17, flow["sport"], 4791)
        path = [src["name"], src["leaf"]]
        while path[-1] != dst["leaf"]:
            path.append(next_switch(shown, path[-1], dst, packet, {failed}))
        assert flow["path"] == [*path, dst["name"]]
        assert 0xC000 <= flow["sport"] <= 0xFFFF
        load.update(pairwise(path[1:]))
        seen.add((flow["src"], flow["dst"], flow["sport"]))
    assert len(seen) == len(flows)
    assert routed["max_load"] == max(load.values())
    assert routed["min_rate"] == min(f["rate_gbps"] for f in routed["flows"]) > 0
    assert routed["elapsed_ms"] > 0
    if topology["kind"] == "leaf_spine":
        assert routed["excess"] == routed["max_load"] - bound(flows, hosts, failed)
        assert routed["excess"] == 0 or algorithm != "optimal"


def bound(flows: list[tuple[str, str]], hosts: dict, failed: str) -> int:
    out, into = Counter(), Counter()
    for a, b in flows:
        if hosts[a]["leaf"] != hosts[b]["leaf"]:
            out[hosts[a]["leaf"]] += 1
            into[hosts[b]["leaf"]] += 1
    uplinks = {f"leaf{i}": 4 - (failed == "spine3" or failed.startswith(f"leaf{i}-")) for i in range(1, 7)}
    return max(-(-n // uplinks[u]) for side in (out, into) for u, n in side.items())


def test_rates_share_what_the_paths_share(capsys, files) -> None:
    one_spine = {**LEAF_SPINE, "spines": 1, "fabric_gbps": 60}
    assert (
        main(["route", *files(one_spine, ["src,dst,weight", "h1,h5,2", "h2,h6,2", "h3,h4,1"]), "--json"]) == 0
    )
    routed = json.loads(capsys.readouterr().out)
    assert [f["rate_gbps"] for f in routed["flows"]] == [30, 30, 100]
    assert (routed["max_load"], routed["min_rate"], routed["excess"]) == (2, 30, 0)


def test_weights_count_as_load(capsys, files) -> None:
    fabric = {**LEAF_SPINE, "spines": 2}
    rows = ["h1,h5,4", "h2,h6,1", "h3,h7,1", "h4,h8,2"]
    assert main(["route", *files(fabric, rows), "--algorithm", "greedy", "--json"]) == 0
    routed = json.loads(capsys.readouterr().out)
    assert [f["path"][2] for f in routed["flows"]] == ["spine1", "spine2", "spine2", "spine2"]


def test_a_server_with_rails_keeps_to_its_rail(capsys, files) -> None:
    rails = {
        "kind": "rail", "groups": 2, "rails": 3, "spines": 2, "servers_per_group": 2,
        "host_gbps": 100, "fabric_gbps": 100,
    }  # fmt: skip
    given = files(rails, ["h1,h4"] * 4 + ["h2.3,h3.3"])
    assert main(["route", *given, "--json"]) == 0
    paths = [f["path"] for f in json.loads(capsys.readouterr().out)["flows"]]
    assert [(p[0], p[1], p[-2], p[-1]) for p in paths] == [
        ("h1.1", "leaf1", "leaf4", "h4.1"),
        ("h1.2", "leaf2", "leaf5", "h4.2"),
        ("h1.3", "leaf3", "leaf6", "h4.3"),
        ("h1.1", "leaf1", "leaf4", "h4.1"),
        ("h2.3", "leaf3", "leaf6", "h3.3"),
    ]
    assert main(["topo", "show", given[1], "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["hosts"]
    assert [h["name"] for h in shown] == ["h1", "h2", "h3", "h4"]
    assert [n["leaf"] for n in shown[3]["nics"]] == ["leaf4", "leaf5", "leaf6"]


def test_k_shortest_paths_of_any_graph(capsys, files) -> None:
    ladder = {
        "kind": "explicit",
        "switches": [{"name": f"l{i}", "tier": "leaf"} for i in range(3)],
        "hosts": [{"name": f"h{i}", "leaf": f"l{i}", "gbps": 10} for i in range(3)],
        "links": [{"a": a, "b": b, "gbps": 10} for a, b in (("l0", "l1"), ("l1", "l2"), ("l0", "l2"))],
    }
    given = files(ladder, ["h0,h1"] * 2)
    assert main(["route", *given, "--paths", "2", "--json"]) == 0
    flows = json.loads(capsys.readouterr().out)["flows"]
    assert [f["path"] for f in flows] == [["h0", "l0", "l1", "h1"], ["h0", "l0", "l2", "l1", "h1"]]
    assert flows[1]["sport"] is None


@pytest.mark.parametrize(
    ("rows", "extra", "words"),
    [
        (["h1,h5", "h1,h99"], [], ["row 2", "'h99'"]),
        (["h1,h5", "h1,h5,-3"], [], ["row 2", "-3", "positive"]),
        (["h1,h5,nan"], [], ["row 1", "nan"]),
        (["h1,h5,x"], [], ["row 1", "'x'"]),
        (["src,dst", "h1,h1"], [], ["row 2", "h1"]),
        (["h1"], [], ["row 1", "columns"]),
        (["h1,h5\0"], [], ["row 1"]),
        (["h1,h2", "h1,h5"], ["--fail", "spine1,spine2,spine3,spine4"], ["row 2", "no path", "h5"]),
        (["h2,h3", "h1,h5"], ["--fail", "leaf2"], ["row 2", "no path", "h5"]),
        (["h2,h3", "h1,h5"], ["--fail", "h1-leaf1"], ["row 2", "no path", "h1"]),
        (["h1,h5"], ["--fail", "spine9"], ["--fail", "'spine9'"]),
        (["h1,h5"], ["--paths", "0"], ["--paths"]),
    ],
)
def test_bad_input_is_told_with_its_row(capsys, files, rows, extra, words) -> None:
    assert main(["route", *files(LEAF_SPINE, rows), "--algorithm", "auto", *extra, "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(word in err for word in words), err
    assert "Traceback" not in err


def test_too_many_rows_end_at_the_limit(capsys, files, monkeypatch) -> None:
    monkeypatch.setattr("polyrhythm.flows_file.MAX_FLOWS", 1000)
    assert main(["route", *files(LEAF_SPINE, ["h1,h5"] * 5000), "--json"]) == 2
    assert "row 1001: more than 1000 flows" in capsys.readouterr().err


RAIL = {
    "kind": "rail", "groups": 1, "rails": 2, "spines": 2, "servers_per_group": 4, "host_gbps": 100, "fabric_gbps": 100,
}  # fmt: skip


def job_files(folder: Path, topology: dict, *jobs: dict) -> list[str]:
    fabric, file = folder / "fabric.json", folder / "jobs.json"
    fabric.write_text(json.dumps(topology))
    file.write_text(json.dumps({"jobs": jobs}))
    return ["--topology", str(fabric), "--jobs", str(file)]


def test_flows_follow_from_what_jobs_are(capsys, tmp_path) -> None:
    """Two rails, a ring of two GPUs on each, two queue pairs each way, beside a job of half the bytes."""
    traffic = {"parallelism": {"tensor": 2, "data": 2}, "data_bytes": 4e9, "queue_pairs": 2}
    big = {"name": "big", "gpus": 4, "hosts": ["h1", "h2"], "traffic": traffic}
    small = {"name": "small", "gpus": 2, "hosts": ["h3.1", "h4.1"], "traffic": {"data_bytes": 1e9}}
    assert main(["route", *job_files(tmp_path, RAIL, big, small), "--json"]) == 0
    flows = {f["flow"]: f for f in json.loads(capsys.readouterr().out)["flows"]}
    ends = [("h1.1", "h2.1"), ("h2.1", "h1.1"), ("h1.2", "h2.2"), ("h2.2", "h1.2")]
    names = [f"big/{a}>{b}{part}" for a, b in ends for part in ("", "#1")]
    assert sorted(flows) == sorted([*names, "small/h3.1>h4.1", "small/h4.1>h3.1"])
    assert len({(f["src"], f["dst"], f["sport"]) for f in flows.values()}) == len(flows)
    # Two queue pairs share their NIC's link.
    assert flows["big/h1.1>h2.1#1"]["rate_gbps"] == 50
    assert flows["small/h3.1>h4.1"]["rate_gbps"] == 100


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hosts": ["h1", "h99"]}, "jobs[0].hosts[1]: 'h99' is no host of the fabric; legal: "),
        ({"hosts": ["h1", "h1"]}, "jobs[0].hosts: 'h1' is in the list twice; legal: each host once"),
        ({"gpus": 3}, "jobs[0].gpus: 3 GPUs on 2 hosts are not the same number on each"),
        ({"traffic": {"data_bytes": 0}}, "jobs[0].traffic: the job sends nothing over the fabric"),
        (
            {"traffic": {"parallelism": {"data": 5}}},
            "jobs[0].traffic: tensor 1 x pipeline 1 x data 5 are 5 GPUs",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_its_line(capsys, tmp_path, change, words) -> None:
    job = {"name": "a", "gpus": 2, "hosts": ["h1", "h2"], "traffic": {"data_bytes": 1e9}, **change}
    assert main(["route", *job_files(tmp_path, LEAF_SPINE, job)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_job_without_a_path_is_named(capsys, tmp_path) -> None:
    job = {"name": "a", "gpus": 2, "hosts": ["h1", "h5"], "traffic": {"data_bytes": 1e9}}
    assert main(["route", *job_files(tmp_path, LEAF_SPINE, job), "--fail", "leaf2"]) == 2
    assert capsys.readouterr().err == "a/h1>h5: no path from h1 to h5: h5 is cut off\n"


def test_no_flows_and_missing_files(capsys, files, tmp_path) -> None:
    given = files(LEAF_SPINE, ["src,dst"])
    assert main(["route", *given, "--json"]) == 0
    routed = json.loads(capsys.readouterr().out)
    assert (routed["flows"], routed["max_load"], routed["min_rate"], routed["excess"]) == ([], 0, None, 0)
    assert main(["route", *given[:3], str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_many_flows_use_the_kernels_and_say_so_once(capsys, files) -> None:
    rng = random.Random(1)
    rows = [",".join(rng.sample(hosts_of(LEAF_SPINE), 2)) for _ in range(600)]
    given = files(LEAF_SPINE, rows)
    assert main(["route", *given, "--algorithm", "optimal"]) == 0
    assert "600 flows by optimal" in capsys.readouterr().out


@pytest.mark.parametrize("algorithm", ["greedy", "optimal", "ecmp", "annealing", "ilp", "auto"])
@pytest.mark.parametrize("many", [1, 300])
def test_a_fabric_without_spines(capsys, files, algorithm, many) -> None:
    if algorithm == "ilp":
        pytest.importorskip("highspy")
    bare = {**LEAF_SPINE, "spines": 0}
    assert main(["route", *files(bare, ["h1,h2"] * many), "--algorithm", algorithm, "--json"]) == 0
    routed = json.loads(capsys.readouterr().out)
    assert routed["flows"][0]["path"] == ["h1", "leaf1", "h2"]
    assert (routed["max_load"], routed["excess"]) == (0, 0)
    assert main(["route", *files(bare, ["h1,h2", "h1,h5"] * many), "--algorithm", algorithm]) == 2
    assert "row 2: no path from h1 to h5" in capsys.readouterr().err


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_first_ilp_of_a_process_prints_nothing_but_the_result(files) -> None:
    pytest.importorskip("highspy")
    command = ["route", *files(LEAF_SPINE, ["h1,h5", "h2,h6"]), "--algorithm", "ilp", "--json"]
    assert json.loads(python(f"from polyrhythm.cli import main; main({command!r})"))["max_load"]


def test_without_numba_the_plain_loops_do_the_same(files) -> None:
    rng = random.Random(2)
    given = files(LEAF_SPINE, [",".join(rng.sample(hosts_of(LEAF_SPINE), 2)) for _ in range(300)])
    command = ["route", *given, "--algorithm", "greedy", "--json"]
    with_kernels = json.loads(python(f"from polyrhythm.cli import main; main({command!r})"))
    hidden = f"import sys; sys.modules['numba'] = None; from polyrhythm.cli import main; main({command!r})"
    without = json.loads(python(hidden))
    assert without["flows"] == with_kernels["flows"]
    assert without["max_load"] == with_kernels["max_load"]


def test_few_flows_do_not_wait_for_numba(files) -> None:
    command = ["route", *files(LEAF_SPINE, ["h1,h5"]), "--json"]
    code = f"import sys; from polyrhythm.cli import main; main({command!r}); print('numba' in sys.modules)"
    assert python(code).splitlines()[-1] == "False"


BUNDLED = {
    "kind": "explicit",
    "switches": [{"name": n, "tier": t} for n, t in (("x", "leaf"), ("y", "leaf"), ("s", "spine"), ("t", "spine"))],
    "hosts": [{"name": f"{u}{i}", "leaf": u, "gbps": 100} for u in "xy" for i in range(8)],
    # Spine s has two cables to each leaf; y's are wired crosswise.
    "links": [{"a": a, "b": b, "gbps": 100} for a, b in (("x", "s"), ("y", "s"), ("x", "t"), ("s", "y"), ("x", "s"), ("t", "y"))],
}  # fmt: skip


@pytest.mark.parametrize("algorithm", ["greedy", "optimal", "ecmp"])
def test_parallel_cables_count_each_for_itself(capsys, files, algorithm) -> None:
    given = files(BUNDLED, [f"x{i},y{i}" for i in range(6)])
    assert main(["route", *given, "--algorithm", algorithm, "--json"]) == 0
    routed = json.loads(capsys.readouterr().out)
    assert main(["topo", "show", given[1], "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    hosts = {h["name"]: h for h in shown["hosts"]}
    slices = {s["name"]: s["hash"]["slice"]["lsb"] for s in shown["switches"]}
    ports: dict[str, list[tuple[int, str, int]]] = {}
    for k in shown["links"]:
        for a, b in (("a", "b"), ("b", "a")):
            ports.setdefault(k[a], []).append((k[f"{a}_port"], k[b], k[f"{b}_port"]))
    load: Counter[tuple[str, int]] = Counter()
    for flow in routed["flows"]:
        ends = [int(ipaddress.ip_address(hosts[flow[e]]["ip"])) for e in ("src", "dst")]
        value = zlib.crc32(struct.pack("!IIBHH", *ends, 17, flow["sport"], 4791))
        here, path = "x", ["x"]
        while here != "y":
            ways = sorted(w for w in ports[here] if here == "x" or w[1] == "y")
            port, there, _ = ways[(value >> slices[here] & 255) % len(ways)]
            load[here, port] += 1
            here = there
            path.append(here)
        assert path == flow["path"][1:-1]
    assert routed["max_load"] == max(load.values())
    assert routed["excess"] == max(load.values()) - 2
    if algorithm == "optimal":
        assert set(load.values()) == {2}
        assert routed["min_rate"] == 50


def test_polarised_tiers_are_told(capsys, files) -> None:
    same = {**THREE_TIER, "hash": {"algorithm": "crc32", "slices": [0, 0, 8]}}
    given = files(same, ["h1,h5", "h2,h6", "h1,h9", "h2,h10", "h1,h6"])
    assert main(["topo", "show", given[1]]) == 0
    assert "polarised: leaf and spine switches read common bits" in capsys.readouterr().out
    assert main(["topo", "show", given[1], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["polarisation"]
    assert (found["polarised"], found["reached"], found["possible"]) == (True, 2, 4)
    assert main(["route", *given, "--json"]) == 0
    out, err = capsys.readouterr()
    routed = json.loads(out)
    assert routed["polarised"].startswith("polarised: ")
    lost = [f for f in routed["flows"] if f["sport"] is None]
    assert f"{len(lost)} of 5 flows have no source port" in err or not lost
    sound = files(THREE_TIER, ["h1,h5"])
    assert main(["topo", "show", sound[1], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["polarisation"]["polarised"] is False
    assert main(["route", *sound, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["polarised"] is None


def test_the_hash_is_the_file_s(capsys, files) -> None:
    other = {**LEAF_SPINE, "hash": {"algorithm": "crc16", "slices": [3, 0, 8]}}
    given = files(other, ["h1,h5", "h2,h6", "h3,h24"])
    assert main(["route", *given, "--json"]) == 0
    for flow, ends in zip(
        json.loads(capsys.readouterr().out)["flows"],
        (("10.0.1.1", "10.0.2.1"), ("10.0.1.2", "10.0.2.2"), ("10.0.1.3", "10.0.6.4")),
        strict=True,
    ):
        packet = struct.pack("!IIBHH", *(int(ipaddress.ip_address(e)) for e in ends), 17, flow["sport"], 4791)
        value = 0
        for byte in packet:
            value ^= byte
            for _ in range(8):
                value = value >> 1 ^ (0xA001 if value & 1 else 0)
        assert flow["path"][2] == f"spine{(value >> 3 & 255) % 4 + 1}"


def test_an_unknown_hash_gives_no_ports(capsys, files) -> None:
    given = files({**LEAF_SPINE, "hash": "unknown"}, ["h1,h5", "h1,h2", "h1,h2"])
    assert main(["route", *given, "--json"]) == 0
    out, err = capsys.readouterr()
    assert [f["sport"] for f in json.loads(out)["flows"]] == [None, 0xC000, 0xC001]
    assert "1 of 3 flows have no source port: the hash of the switches is unknown" in err


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("crc64", "'crc64' is wrong; legal: unknown, or a table"),
        ({"algorithm": "md5", "slices": [0, 8, 16]}, "'md5' is wrong; legal: crc32, crc16"),
        (
            {"algorithm": "crc16", "slices": [0, 8, 16]},
            "slices[2]: 16 is wrong; legal: a whole number from 0 to 8",
        ),
        ({"algorithm": "crc32", "slices": [0, 8]}, "a list of 3"),
        ({"algorithm": "crc32"}, "slices"),
    ],
)
def test_a_hash_that_makes_no_sense_is_refused(capsys, files, spec, words) -> None:
    assert main(["route", *files({**LEAF_SPINE, "hash": spec}, ["h1,h5"])]) == 2
    err = capsys.readouterr().err
    assert "hash" in err
    assert words in err


def test_a_byte_order_mark_and_a_header_in_capitals(capsys, files) -> None:
    given = files(LEAF_SPINE, ["\ufeffSrc,DST", "", "h1,h5", "  ", " h2 , h6 "])
    assert main(["route", *given, "--json"]) == 0
    assert [f["src"] for f in json.loads(capsys.readouterr().out)["flows"]] == ["h1", "h2"]
