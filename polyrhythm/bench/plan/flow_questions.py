# SPDX-License-Identifier: Apache-2.0
"""Agents that ask for new flows, in a process of their own.

`python -m polyrhythm.bench.plan.flow_questions ADDRESS SEED LEAVES SPINES` opens the sessions of the hosts
that ask (`effect.py: asking_hosts`) with the controller at ADDRESS, lets one job join on them, and prints a
line when it has its plan. It reads one line of JSON, asks for the job's flows for `seconds`,
QUESTIONS_A_SECOND a second, and waits up to `end_s` for the last answers. Then it prints one line of JSON:
`answers_s`, the time of each answer, and `unanswered`. It ends when its input is closed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from random import Random

from controller.process.latency import switch_threads_often
from controller.wire.time_slices import short_time_slices
from polyrhythm.bench.plan.agent_stand_ins import connected, until
from polyrhythm.bench.plan.effect import QUESTIONS_A_SECOND, asking_hosts, job

JOB = "pool"


async def _serve(address: str, seed: int, leaves: int, spines: int) -> None:
    hosts = asking_hosts(leaves, spines)
    async with connected(address, hosts) as agents:
        pool = job(JOB, [h.name for h in hosts], Random(f"{seed}/bench plan/questions"))
        agents.arrive(pool)
        await until(lambda: agents.arrivals[JOB].ended_s, "the plan for the job whose flows are asked for")
        print("ready", flush=True)
        said = await asyncio.to_thread(sys.stdin.readline)
        if not said:
            return
        wanted, began = json.loads(said), time.monotonic()
        for number in range(int(wanted["seconds"] * QUESTIONS_A_SECOND)):
            due = began + number / QUESTIONS_A_SECOND
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            agents.ask(pool.flows[number % len(pool.flows)])
        end = time.monotonic() + wanted["end_s"]
        while agents.asked and time.monotonic() < end:
            await asyncio.sleep(0.02)
        print(json.dumps({"answers_s": agents.answers_s, "unanswered": len(agents.asked)}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main(address: str, seed: int, leaves: int, spines: int) -> None:
    """Ask, print, and serve until the input is closed."""
    short_time_slices()
    switch_threads_often()
    asyncio.run(_serve(address, seed, leaves, spines))


if __name__ == "__main__":
    main(sys.argv[1], *(int(word) for word in sys.argv[2:]))
