# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm soak`: run controller, agents and jobs for long, and look whether a process grows.

The processes are those of `polyrhythm chaos`. Links fail and come back, agents ask for new flows all the
time, connections come and go, and the page's routes are read. Memory, open files and threads of the
controller and the agents are sampled every second. What counts is the median of the last quarter of the
samples minus that of the second quarter: the first quarter warms up.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from polyrhythm.progress import Bar
from polyrhythm.subcommands import integer

_SAMPLE_S = 1.0
# A line of progress every so many seconds where there is no terminal.
_LINES_S = 60.0
# Growth that is noise. Chosen: an allocator keeps some pages, and connections overlap.
MOST_MIB, MOST_FILES, MOST_THREADS = 8.0, 8.0, 4.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm soak`."""
    parser.add_argument(
        "--seconds",
        type=integer(8),
        default=600,
        metavar="S",
        help="how long, at least 8 (default %(default)s)",
    )
    parser.add_argument(
        "--seed", type=integer(0), default=1, metavar="N", help="chooses what happens (default %(default)s)"
    )
    parser.add_argument(
        "--logs", type=Path, metavar="DIR", help="keep the logs of all processes in this folder"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the soak. Returns 1 if a process has grown or did not start."""
    from polyrhythm.chaos.processes import ProcessError

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if args.logs is not None:
            args.logs.mkdir(parents=True, exist_ok=True)
            folder = args.logs.resolve()
        try:
            figures = _run(folder, args.seconds, args.seed)
        except ProcessError as error:
            print(f"polyrhythm soak: {error}", file=sys.stderr)
            return 1
    if args.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, grown in figures["processes"].items():
            print(f"{name}: {json.dumps(grown)}")
        print("\n".join(figures["what"]) or "no process has grown")
    return 1 if figures["what"] else 0


def _run(folder: Path, seconds: int, seed: int) -> dict[str, Any]:
    # gRPC and the P4 classes take a second to import, and --help needs none of them.
    from polyrhythm.chaos.invariants import START_S, Invariants
    from polyrhythm.chaos.processes import ChaosCluster, ProcessError

    rng = Random(f"{seed}/soak")
    cluster = ChaosCluster(folder)
    samples: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    try:
        cluster.start()
        invariants = Invariants(cluster)
        wrong, _ = invariants.settle(START_S)
        if wrong:
            raise ProcessError(f"it does not begin: {'; '.join(wrong)}")
        began = time.monotonic()
        with Bar("soak", seconds, _LINES_S, "s") as bar:
            while (gone := time.monotonic() - began) < seconds:
                _disturb(cluster, rng)
                invariants.look()
                for name, pid in _processes(cluster).items():
                    samples[name].append(sample(pid))
                bar.step(int(gone))
                time.sleep(max(0.0, _SAMPLE_S - (time.monotonic() - began - gone)))
        wrong, _ = invariants.settle()
    finally:
        cluster.stop()
    processes = {name: growth(found) for name, found in samples.items()}
    return {
        "seconds": seconds,
        "seed": seed,
        "processes": processes,
        "answers": len(invariants.seen.answers_ms),
        "what": [*wrong, *too_much(processes)],
    }


def _disturb(cluster: Any, rng: Random) -> None:
    """Something that takes memory, files or threads for a moment."""
    link = rng.choice(cluster.topology.links)
    switches = cluster.topology.switch
    kind = rng.randrange(4)
    if kind == 0 and link.a in switches and link.b in switches:
        for up in (False, True):
            cluster.command(do="link", link=(link.a, link.b), up=up)
    elif kind == 1:
        for route in ("fabric", "flows", "jobs", "plan", "counters", "nothing"):
            cluster.api(route)
    elif kind == 2:
        rng.choice(list(cluster.to_controller.values())).cut()
    else:
        rng.choice(list(cluster.to_switch.values())).cut()


def _processes(cluster: Any) -> dict[str, int]:
    return {"controller": cluster.controller.pid, **{n: a.pid for n, a in cluster.agents.items()}}


def sample(pid: int) -> dict[str, float]:
    """Memory in MiB, open files and threads of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return {
        "mib": int(status.partition("VmRSS:")[2].split()[0]) / 1024,
        "files": float(len(list(Path(f"/proc/{pid}/fd").iterdir()))),
        "threads": float(status.partition("Threads:")[2].split()[0]),
    }


def growth(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The last median of each figure, and by how much it is above that of the second quarter."""
    quarter = max(1, len(samples) // 4)
    early, late = samples[quarter : 2 * quarter] or samples[:1], samples[-quarter:]
    found = {}
    for name in ("mib", "files", "threads"):
        last = statistics.median(s[name] for s in late)
        found[name] = round(last, 1)
        found[f"{name}_grown"] = round(last - statistics.median(s[name] for s in early), 1)
    return found


def too_much(processes: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The processes that have grown by more than noise, in words."""
    limits = {"mib": MOST_MIB, "files": MOST_FILES, "threads": MOST_THREADS}
    return [
        f"{process} has grown by {found[f'{name}_grown']:g} {name}"
        for process, found in processes.items()
        for name, limit in limits.items()
        if found[f"{name}_grown"] > limit
    ]
