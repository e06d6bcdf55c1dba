# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper crux-trace`: the fabrics, who runs where, the judge, and a moment through the command."""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import pytest

from controller.routing.forwarding import forwarding
from controller.routing.paths import paths
from polyrhythm.cli import main
from polyrhythm.paper.crux_trace import beyond_spraying, order
from polyrhythm.paper.crux_trace_fabrics import cluster, fabric
from polyrhythm.paper.crux_trace_jobs import generated, lengthened, occupancy
from polyrhythm.paper.crux_trace_moment import LEVEL, MOST_VOLUME, NEAR, Moment, calibrated, spread
from polyrhythm.paper.crux_trace_places import SCHEDULERS, duty
from polyrhythm.paper.crux_trace_store import Store
from sim.cluster import JobRequest
from topo.graph import Tier


def test_the_fabrics_are_the_papers() -> None:
    clos = fabric("clos", "")
    assert Counter(s.tier for s in clos.switches) == {Tier.LEAF: 173, Tier.SPINE: 16}
    both = fabric("double_sided", "")
    assert Counter(s.tier for s in both.switches) == {Tier.LEAF: 6, Tier.SPINE: 12, Tier.CORE: 32}
    assert {len({h.leaf for h in nics}) for nics in both.machines.values()} == {2}
    assert min(len(clos.machines), len(both.machines)) * 8 > 2000


def test_labels_of_the_real_cluster_are_groups_without_oversubscription(tmp_path: Path) -> None:
    places = [("G6", "P1", "S1")] * 3 + [("G6", "P1", "S2")] * 2 + [("G6", "P2", "S1")] * 3
    rows = [f"ip{i},{','.join(place)}" for i, place in enumerate(places)]
    (tmp_path / "topo.csv").write_text("\n".join(("ip,DSW,PSW,ASW", *rows)) + "\n")
    found = fabric("given", str(tmp_path / "topo.csv"))
    assert Counter(s.tier for s in found.switches) == {Tier.LEAF: 3, Tier.SPINE: 8, Tier.CORE: 32}
    up: Counter[str] = Counter()
    down: Counter[str] = Counter()
    for link in found.links:
        low, high = sorted((link.a, link.b), key=lambda s: found.switch[s].tier.level)
        up[low] += link.rate_bps
        down[high] += link.rate_bps
    hosts = Counter(h.leaf for h in found.hosts)
    for switch in found.switches:
        below = hosts[switch.name] * 400e9 if switch.tier is Tier.LEAF else down[switch.name]
        assert switch.tier is Tier.CORE or up[switch.name] >= below
    table = forwarding(found)
    assert len(paths(found, table, "h1", "h4")) == 4
    assert len(paths(found, table, "h1", "h6")) == 32


def test_nobody_has_a_gpu_that_another_has() -> None:
    on = cluster("clos", "")
    jobs = generated(2.0, on.gpus, 3)
    hour = 3600 * 10**9
    states = occupancy(on, jobs, [i * hour for i in range(48)], 3)
    assert len(states) == 48
    seen = set()
    for state in states:
        held: Counter[str] = Counter()
        for request, placement in state:
            assert sum(g for _, g in placement) == request.gpus
            held.update(dict(placement))
            seen.add(request.name)
        assert max(held.values(), default=0) <= 8
    assert len(seen) > 100
    assert generated(2.0, on.gpus, 3) == jobs
    assert generated(2.0, on.gpus, 4) != jobs


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_gives_each_gpu_once_and_gets_all_back(scheduler: str) -> None:
    on = cluster("clos", "")
    jobs = generated(1.0, on.gpus, 3)
    places = SCHEDULERS[scheduler](on, 3)
    for _ in range(2):
        held: Counter[str] = Counter()
        given = [(job, found) for job in jobs[:150] if (found := places.place(job)) is not None]
        for job, placement in given:
            assert sum(gpus for _, gpus in placement) == job.gpus
            held.update(dict(placement))
        assert 0 < max(held.values()) <= 8
        for job, placement in given:
            places.give_back(job, placement)


def test_muri_lets_jobs_share_a_host_that_send_in_turn_and_hived_keeps_hosts_whole() -> None:
    on = cluster("clos", "")
    by_model = {job.model: job for job in generated(14.0, on.gpus, 1)}
    seldom, often = (replace(by_model[m], gpus=16) for m in ("gpt", "click-through-rate"))
    assert duty(seldom) < 0.5 < duty(often) < 1
    muri = SCHEDULERS["muri"](on, 1)
    first = muri.place(replace(seldom, gpus=12)) or ()
    halves = {server for server, gpus in first if gpus == 4}
    second = muri.place(replace(seldom, gpus=12)) or ()
    assert halves
    assert halves <= set(dict(second))
    third = muri.place(replace(often, gpus=12)) or ()
    assert {s for s, _ in third}.isdisjoint({s for s, _ in (*first, *second)})
    hived = SCHEDULERS["hived"](on, 1)
    assert [gpus for _, gpus in hived.place(often) or ()] == [8, 8]
    leaf = {s.name: s.leaf for s in on.servers}
    assert len({leaf[server] for server, _ in hived.place(seldom) or ()}) == 1


def test_a_files_jobs_are_lengthened_by_one_factor() -> None:
    on = cluster("clos", "")
    jobs = generated(2.0, on.gpus, 3, busy=0.1)
    horizon = 2 * 86400 * 10**9

    def busy(found: Sequence[JobRequest]) -> float:
        return sum(r.gpus * r.iterations * r.shape.compute_ns for r in found) / horizon / on.gpus

    assert busy(jobs) == pytest.approx(0.1, rel=0.05)
    longer = lengthened(jobs, 0.3 * on.gpus, horizon)
    assert busy(longer) == pytest.approx(0.3, rel=0.05)
    assert [replace(b, iterations=a.iterations) for a, b in zip(jobs, longer, strict=True)] == list(jobs)
    cut = lengthened(jobs, 100.0 * on.gpus, horizon)
    assert max(r.iterations * r.shape.compute_ns for r in cut) <= horizon / 3


def test_jobs_of_several_hosts_share_hosts() -> None:
    on = cluster("clos", "")
    states = occupancy(on, generated(2.0, on.gpus, 3), [i * 3600 * 10**9 for i in range(48)], 3)
    users = [
        Counter(server for _, placement in state if len(placement) > 1 for server, _ in placement)
        for state in states
    ]
    assert max(n for hosts in users for n in hosts.values()) == 2


def test_the_order_by_hand() -> None:
    names = ("sincronia", "taccl", "cassini", "crux_pa", "crux_ps_pa", "crux_full", "ours")

    def judged(*percent: int) -> dict[str, bool]:
        found: dict[str, bool] = order(
            {n: [float(v)] for n, v in zip(names, percent, strict=False)}, [100.0]
        )["order"]
        return found

    assert all(judged(39, 49, 48, 51, 62, 62, 62).values())
    assert not any(judged(50, 49, 48, 45, 44, 46, 40).values())
    assert "crux_full <= ours" not in judged(10, 10, 10, 10, 10, 10)


def test_what_is_gained_beyond_spraying() -> None:
    busy = {"spray": [50.0, 60.0], "crux_full": [52.0, 62.0], "cassini": [49.0, 61.0]}
    assert beyond_spraying(busy, [100.0, 100.0]) == {"crux_full": [0.02, 0.0], "cassini": [0.0, 0.01]}
    assert beyond_spraying({"crux_full": [1.0]}, [100.0]) == {}


def test_what_is_missed_by_a_standard_error_is_not_above() -> None:
    base = {n: [10.0, 20.0] for n in ("sincronia", "taccl", "cassini", "crux_pa", "crux_ps_pa", "crux_full")}
    claim = "crux_pa <= crux_ps_pa"
    noisy = order({**base, "crux_ps_pa": [7.0, 22.9]}, [100.0, 100.0])
    assert noisy["order"][claim]
    assert noisy["margin"][claim] == [-0.0005, 0.0295]
    assert not order({**base, "crux_ps_pa": [9.7, 19.7]}, [100.0, 100.0])["order"][claim]
    assert order({**base, "crux_ps_pa": [9.95, 19.95]}, [100.0, 100.0])["order"][claim]


def test_the_spread_of_a_ratio_by_hand() -> None:
    assert spread([1.0, 1.0, 4.0], [4.0, 4.0, 4.0]) == pytest.approx(1 / 4)
    assert spread([1.0, 2.0, 4.0], [2.0, 4.0, 8.0]) == 0.0
    assert spread([3.0], [4.0]) == 0.0


@pytest.mark.parametrize("steepness", [0.001, 0.02, 0.6, 40.0])
def test_the_volume_is_found_at_which_utilisation_is_the_papers(steepness: float) -> None:
    found = calibrated(lambda volume: 1 / (1 + steepness * volume))
    assert found.reached
    assert abs(1 / (1 + steepness * found.volume) - LEVEL) <= NEAR
    assert len(found.tried) <= 9


def test_a_volume_that_is_not_there_is_told() -> None:
    never = calibrated(lambda _: 1.0)
    assert (never.reached, never.utilisation) == (False, 1.0)
    assert max(volume for volume, _ in never.tried) == MOST_VOLUME
    low = calibrated(lambda _: 0.1)
    assert (low.reached, low.utilisation) == (False, 0.1)


@pytest.mark.slow
def test_a_moment_through_the_command_and_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--days", "0.5", "--samples", "1", "--window-s", "1", "--without-ours", "--workers", "2"]
    words += ["--volume", "1"]
    assert main(["paper", "crux-trace", *words, "--json", "--out", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    lines = (tmp_path / "moments.jsonl").read_text().splitlines()
    # Three ways to choose paths besides the six of the paper, on two fabrics, and three policies with each of
    # two job schedulers.
    assert len(lines) == 2 * (6 + 3) + 2 * 3
    assert (
        report["schedulers"]["none"]["utilisation"]["ecmp"]
        == report["fabrics"]["clos"]["utilisation"]["ecmp"]
    )
    for name in ("clos", "double_sided"):
        found = report["fabrics"][name]
        assert all(0 < v <= 1 for v in found["utilisation"].values())
        assert found["gpus_allocated"] > 0
        assert found["order"].keys() == found["margin"].keys()
    assert report["calibration"] is None
    # Done already: nothing is simulated again, a line that was cut off is made again.
    (tmp_path / "moments.jsonl").write_text("\n".join(lines[:-1]) + '\n{"mark": "')
    assert main(["paper", "crux-trace", *words, "--json", "--out", str(tmp_path)]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["fabrics"] == report["fabrics"]
    assert (tmp_path / "figure-23.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--samples", "0"], "--samples: 0; legal: 1"),
        (["--days", "nan"], "--days: nan; legal"),
        (["--volume", "0"], "--volume: 0; legal: 0.015625 to 4096"),
        (["--volume", "nan"], "--volume: nan; legal"),
        (["--window-s", "0.1"], "--window-s: 0.1; legal: 1"),
        (["--trace", "nowhere.csv"], "nowhere.csv"),
        (["--topology", "nowhere.csv"], "nowhere.csv"),
        (["--topology", "nowhere.json"], "nowhere.json"),
    ],
)
def test_bad_input(options: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "crux-trace", *options]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_full_disk_keeps_the_results_of_an_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = {field.name: 1 for field in fields(Moment)}
    line = json.dumps({"mark": "m", "key": ["clos", 0, "ecmp"], "moment": moment})
    path = tmp_path / "moments.jsonl"
    path.write_bytes(f"{line}\n".encode() + b'\xff\n5\n{"mark": "')
    before = path.read_bytes()
    write = Path.write_bytes

    def full(file: Path, content: bytes) -> int:
        write(file, content[:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    with ProcessPoolExecutor(1) as pool:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_bytes", full)
            with pytest.raises(OSError, match="No space"):
                Store(pool, path)
        assert path.read_bytes() == before
        Store(pool, path)
    assert path.read_text() == f"{line}\n"
    assert list(tmp_path.iterdir()) == [path]
