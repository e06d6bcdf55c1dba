# SPDX-License-Identifier: Apache-2.0
"""All-reduces of Open MPI with pauses between them. It knows nothing of Polyrhythm.

Rank 0 prints the same JSON lines as `ddp.py`, and begins when it reads a line from its input.
"""

import argparse
import hashlib
import json
import sys
import time

import numpy as np
from mpi4py import MPI


def main() -> None:
    """Reduce."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--compute-ms", type=float, required=True, help="a pause before each all-reduce")
    parser.add_argument("--values", type=int, required=True, help="32-bit floats of an all-reduce")
    args = parser.parse_args()
    world = MPI.COMM_WORLD
    own = np.random.default_rng(world.rank).standard_normal(args.values, np.float32)
    total = np.empty_like(own)
    world.Allreduce(own, total)
    if world.rank == 0:
        print(json.dumps({"ready": True}), flush=True)
        sys.stdin.readline()
    world.Barrier()
    for step in range(args.steps):
        began = time.monotonic()
        time.sleep(args.compute_ms / 1e3)
        world.Allreduce(own, total)
        own = total / world.size + np.float32(step)
        if world.rank == 0:
            print(json.dumps({"step": step, "ms": (time.monotonic() - began) * 1e3}), flush=True)
    states = world.gather(hashlib.sha256(total.tobytes()).hexdigest())
    if world.rank == 0:
        assert states is not None
        print(json.dumps({"state": states[0], "losses": "".join(sorted(set(states)))}), flush=True)


if __name__ == "__main__":
    main()
