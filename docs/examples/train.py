# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training that reports its iterations to Polyrhythm's agent.

    eval "$(polyrhythm agent env example --export)"
    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-endpoint h1:29500 --rdzv-backend c10d docs/examples/train.py

It needs `polyrhythm-job` only. The three lines that matter are numbered. Without an agent they do nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from polyrhythm_job import polyrhythm_job


def torch_iteration() -> tuple[Callable[[], None], Callable[[], None]]:
    """The compute of an iteration, and the all-reduce of its gradients over NCCL."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_node_local_rank())
    model = torch.nn.Linear(8192, 8192).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def compute() -> None:
        optimizer.zero_grad()
        model(torch.randn(256, 8192, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()

    def exchange() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        torch.cuda.synchronize()

    return compute, exchange


def plain_iteration() -> tuple[Callable[[], None], Callable[[], None]]:
    """The same as pauses, to try the agent without GPUs."""
    return lambda: time.sleep(0.02), lambda: time.sleep(0.01)


def main() -> None:
    """Train for some iterations."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--without-torch", action="store_true")
    args = parser.parse_args()
    compute, exchange = plain_iteration() if args.without_torch else torch_iteration()
    with polyrhythm_job("example") as job:  # 1: announce the job
        for _ in range(args.iterations):
            compute()
            with job.communicating():  # 2: mark an Up phase
                exchange()
            job.step()  # 3: end the iteration


if __name__ == "__main__":
    main()
