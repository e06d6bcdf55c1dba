# SPDX-License-Identifier: Apache-2.0
"""Unchanged data-parallel training over gloo, which knows nothing of Polyrhythm. Prints what it ends with.

Arguments: steps, and the length of a pause in seconds that stands for the GPU's time of a step.
"""

import hashlib
import json
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128))
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.Generator().manual_seed(100 + rank)
for _ in range(int(sys.argv[1])):
    inputs, wanted = torch.randn(8, 256, generator=data), torch.randn(8, 128, generator=data)
    time.sleep(float(sys.argv[2]))
    loss = ((model(inputs) - wanted) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
state = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print(json.dumps({"rank": rank, "state": hashlib.sha256(state).hexdigest()}), flush=True)
