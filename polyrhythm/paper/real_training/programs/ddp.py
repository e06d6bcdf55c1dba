# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training over gloo. Without --job it knows nothing of Polyrhythm.

A rank prints JSON lines: `ready` when it is connected, one for each step with its time and loss, and at the
end a hash of the losses and of the parameters. It trains when it reads a line from its input, so that
several jobs can begin together.
"""

import argparse
import hashlib
import json
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

INPUTS, OUTPUTS, BATCH = 256, 128, 8


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument(
        "--compute-ms", type=float, required=True, help="a pause for the GPU's time of a step"
    )
    parser.add_argument("--width", type=int, required=True, help="of the hidden layer")
    parser.add_argument("--job", default="", help="report to Polyrhythm's agent under this name")
    parser.add_argument("--hosts", nargs="+", default=[], help="with --job: a host for each rank")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    network = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, args.width), torch.nn.ReLU(), torch.nn.Linear(args.width, OUTPUTS)
    )
    model = DistributedDataParallel(network)
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    if not args.job:
        train(model, args.steps, args.compute_ms / 1e3)
        return
    from polyrhythm_job import polyrhythm_job
    from polyrhythm_job.ddp import mark_communication

    ranks, values = dist.get_world_size(), sum(p.numel() for p in network.parameters())
    sent = 2 * (ranks - 1) * 4 * values // ranks
    with polyrhythm_job(
        args.job, args.hosts, rank=dist.get_rank(), model="MLP", gpus=ranks, bytes_per_flow=sent
    ) as job:
        mark_communication(job, model)
        train(model, args.steps, args.compute_ms / 1e3, job)


def train(model: DistributedDataParallel, steps: int, compute_s: float, job: Any = None) -> None:
    """Take the steps, and print them. `job` is told the end of each."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(100 + dist.get_rank())
    losses = []
    for step in range(steps):
        began = time.monotonic()
        inputs = torch.randn(BATCH, INPUTS, generator=data)
        wanted = torch.randn(BATCH, OUTPUTS, generator=data)
        time.sleep(compute_s)
        loss = ((model(inputs) - wanted) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if job is not None:
            job.step()
        print(json.dumps({"step": step, "ms": (time.monotonic() - began) * 1e3}), flush=True)
    state = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    parts = {"state": state, "losses": repr(losses).encode()}
    print(json.dumps({k: hashlib.sha256(v).hexdigest() for k, v in parts.items()}), flush=True)


if __name__ == "__main__":
    main()
