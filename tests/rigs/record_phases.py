# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/recorded: run it from the repository's root. Formats as NCCL 2.28 and sysfs have them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

FOLDER = Path(__file__).parents[1] / "data" / "recorded"


def inspector(draw: Random) -> str:
    """VGG-like: 40 ms of all-reduce, 20 ms of compute, 60 ms of all-reduce, 140 ms of compute; in buckets."""
    lines, at, number = [], 1_748_030_377_000_000, 0
    for _ in range(20):
        for start, end, size in ((0, 40_000, 150 << 20), (60_000, 120_000, 225 << 20)):
            step = (end - start) // 4
            for bucket in range(4):
                number += 1
                stop = at + start + (bucket + 1) * step + draw.randint(-300, 300)
                record = {
                    "header": {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 2},
                    "metadata": {
                        "inspector_output_format_version": "v4.0",
                        "git_rev": "",
                        "rec_mechanism": "nccl_profiler_interface",
                        "dump_timestamp_us": stop,
                        "hostname": "h1",
                        "pid": 4711,
                    },
                    "coll_perf": {
                        "coll": "AllReduce",
                        "coll_sn": number,
                        "coll_msg_size_bytes": size // 4,
                        "coll_exec_time_us": step,
                        "coll_algobw_gbs": 3.9,
                        "coll_busbw_gbs": 6.8,
                    },
                }
                lines.append(json.dumps(record))
        at += 260_000 + draw.randint(-1_500, 1_500)
    return "\n".join(lines) + "\n"


def trace(draw: Random) -> str:
    """75 ms of AllGather in each 180 ms; the list is left open, as the plugin leaves it."""
    lines, at = ["["], 1_467_846.5
    for number in range(25):
        common = {"name": "AllGather", "cat": "COLL", "id": number, "pid": 4711, "tid": 1}
        args = {"SeqNum": number, "CommHash": 673864846479792718, "Rank": 1, "Count": 32768}
        lines.append(json.dumps({**common, "ph": "b", "ts": round(at, 3), "args": args}) + ",")
        lines.append(
            json.dumps({**common, "ph": "e", "ts": round(at + 75_000 + draw.uniform(-500, 500), 3)}) + ","
        )
        at += 180_000 + draw.uniform(-1_000, 1_000)
    return "\n".join([*lines, "{}]"]) + "\n"


def counters(draw: Random) -> str:
    """138 ms at 50 Gbit/s in each 300 ms, read every 10 ms or so."""
    lines = ["# time_ns,port_xmit_data of mlx5_0 port 1"]
    time_ns, words = 5_000_000_000, 123_456
    for _ in range(600):
        step = 10_000_000 + draw.randint(0, 400_000)
        busy = sum((time_ns + i * step // 20) % 300_000_000 < 138_000_000 for i in range(20)) / 20
        time_ns += step
        words += int(busy * step * 50 / 8 / 4)
        lines.append(f"{time_ns},{words}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, make in (
        ("inspector.jsonl", inspector),
        ("profiler_trace.json", trace),
        ("port_xmit_data.csv", counters),
    ):
        (FOLDER / name).write_text(make(Random(name)))
