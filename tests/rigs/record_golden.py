# SPDX-License-Identifier: Apache-2.0
"""Record BMv2's answers: `python tests/rigs/record_golden.py`, simple_switch_grpc on PATH, in the root."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time

from diff_driver import Answer, Session, switch_process
from diff_golden import (
    GOLDEN,
    P4INFO,
    PROGRAM,
    Golden,
    Round,
    Scenario,
    by_port,
    masked,
    pipeline_config,
    save,
)
from diff_workload import Workload
from finsy.proto import p4r

BMV2 = "simple_switch_grpc"
SCENARIOS = 4
ROUNDS = 3
PACKETS_PER_ROUND = 920
# Below the depth of BMv2's queues, 64.
BURST = 40


def record(
    program: str | None,
    config: p4r.ForwardingPipelineConfig,
    seed: int,
    rounds: int = ROUNDS,
    packets: int = PACKETS_PER_ROUND,
    burst: int = 1,
) -> Scenario:
    """Run one scenario on a switch process: simple_switch_grpc's path, or None for ours.

    Bursts are of packets that all wait in one queue of their port, or in the CPU's: of several queues
    the order would be a matter of how fast each switch is.
    """
    workload = Workload(seed, config.p4info)
    with switch_process(program) as (control, data):
        session = Session(control, data)
        session.open(config)
        done = []
        for number in range(rounds):
            if burst > 1:
                updates = [] if number else workload.setup(without=("queue",))
                frames = workload.plain_packets(packets - packets % burst)
            else:
                updates = workload.changes() if number else workload.setup()
                frames = workload.packets(packets)
            session.write(updates)
            answers: list[list[Answer]] = []
            for start in range(0, len(frames), burst):
                sent = frames[start : start + burst]
                out = [masked(sent[0], answer) for answer in session.burst(sent)]
                answers += [*([] for _ in sent[1:]), by_port(out)]
            done.append(Round(updates, frames, answers))
        scenario = Scenario(seed, done, session.counters(), burst)
        session.close()
    return scenario


def main() -> int:
    """Record all scenarios; 2 where there is no BMv2."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bmv2", default=shutil.which(BMV2), help=f"path of {BMV2} (default: as on PATH)")
    program = parser.parse_args().bmv2
    if program is None:
        print(f"record_golden: {BMV2} is not on PATH; give --bmv2", file=sys.stderr)
        return 2
    p4info, device = P4INFO.read_text(), PROGRAM.read_text()
    config = pipeline_config(p4info, device)
    scenarios, began = [], time.monotonic()
    for seed in range(1, SCENARIOS + 1):
        scenarios.append(record(program, config, seed))
        print(f"scenario {seed} of {SCENARIOS}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    scenarios.append(record(program, config, SCENARIOS + 1, burst=BURST))
    version = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False
    ).stdout.strip()
    size = save(Golden(f"{BMV2} {version}", p4info, device, scenarios))
    packets = sum(len(part.packets) for scenario in scenarios for part in scenario.rounds)
    print(f"{GOLDEN}: {packets} packets, {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
