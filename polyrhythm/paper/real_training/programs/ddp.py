# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training over gloo. Without --job it knows nothing of Polyrhythm.

A rank prints JSON lines: `ready` when it is connected, one for each step with its time and loss, and at the
end a hash of the losses and of the parameters. It trains when it reads a line from its input, so that
several jobs can begin together.

With --warm-up it first takes steps that do not count, `warm_up` in its lines, until a line of its input says
before which of them the others begin. Those begin with the first parameters and data, so they do not depend
on the number of steps before.
"""

import argparse
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
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
    parser.add_argument("--warm-up", action="store_true", help="take steps that do not count first")
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
    if args.job:
        train_in_rhythm(args, network, model)
    else:
        train(model, args.steps, args.compute_ms / 1e3)


def train_in_rhythm(
    args: argparse.Namespace, network: torch.nn.Module, model: DistributedDataParallel
) -> None:
    """Train as `args` say, and report to Polyrhythm's agent."""
    from polyrhythm_job import polyrhythm_job
    from polyrhythm_job.ddp import mark_communication

    ranks, values = dist.get_world_size(), sum(p.numel() for p in network.parameters())
    sent = 2 * (ranks - 1) * 4 * values // ranks
    with polyrhythm_job(
        args.job, args.hosts, rank=dist.get_rank(), model="MLP", gpus=ranks, bytes_per_flow=sent
    ) as job:
        mark_communication(job, model)
        if args.warm_up:
            warm_up(model, args.compute_ms / 1e3, job)
        train(model, args.steps, args.compute_ms / 1e3, job)


def warm_up(model: DistributedDataParallel, compute_s: float, job: Any) -> None:
    """Take steps until the input has said before which one to end, then set the parameters back."""
    end: list[int] = []
    threading.Thread(target=lambda: end.append(int(sys.stdin.readline())), daemon=True).start()
    first = [parameter.detach().clone() for parameter in model.parameters()]
    for number, _ in enumerate(taken(model, compute_s, job)):
        print(json.dumps({"warm_up": number}), flush=True)
        if end and number + 1 >= end[0]:
            # The ranks take their steps together, so they end together, unless one heard of it too late.
            if number + 1 > end[0]:
                raise RuntimeError(f"step {number} of the warm-up is over, and it should have ended before")
            break
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), first, strict=True):
            parameter.copy_(value)


def train(model: DistributedDataParallel, steps: int, compute_s: float, job: Any = None) -> None:
    """Take the steps, and print them. `job` is told the end of each."""
    losses = []
    for step, (loss, ms) in zip(range(steps), taken(model, compute_s, job), strict=False):
        losses.append(loss)
        print(json.dumps({"step": step, "ms": ms}), flush=True)
    state = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    parts = {"state": state, "losses": repr(losses).encode()}
    print(json.dumps({k: hashlib.sha256(v).hexdigest() for k, v in parts.items()}), flush=True)


def taken(model: DistributedDataParallel, compute_s: float, job: Any) -> Iterator[tuple[float, float]]:
    """Take steps without end: the loss of each, and its time in ms."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(100 + dist.get_rank())
    while True:
        began = time.monotonic()
        inputs = torch.randn(BATCH, INPUTS, generator=data)
        wanted = torch.randn(BATCH, OUTPUTS, generator=data)
        time.sleep(compute_s)
        loss = ((model(inputs) - wanted) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if job is not None:
            job.step()
        yield loss.item(), (time.monotonic() - began) * 1e3


if __name__ == "__main__":
    main()
    # A thread of gloo may still free what the last step sent, for which it takes the interpreter. One that is
    # ending already would end that thread, and with it the rank with an abort.
    os._exit(0)
