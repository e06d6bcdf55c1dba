# SPDX-License-Identifier: Apache-2.0
"""The library in PyTorch, Lightning and Hugging Face's Trainer: two ranks over gloo, and an agent that listens."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_rig import MS, PATIENCE_S, AgentProcess, Hub, config_text, environment, eventually, status

pytestmark = pytest.mark.slow

STEPS = 12
PRELUDE = f"""
import hashlib, json, os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from polyrhythm_job import polyrhythm_job
STEPS = {STEPS}
torch.set_num_threads(1)
torch.manual_seed(3)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
job = polyrhythm_job("a", ["h2", "h3"], rank=0)
data = torch.randn(4 * STEPS, 64, generator=torch.Generator().manual_seed(7))
def shown(model):
    state = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(json.dumps(hashlib.sha256(state).hexdigest()), flush=True)
"""
PROGRAMS = {
    "ddp": """
from polyrhythm_job.ddp import mark_communication
dist.init_process_group("gloo")
model = DistributedDataParallel(net, bucket_cap_mb=0.02)
mark_communication(job, model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with job:
    for i in range(STEPS):
        time.sleep(0.03)
        optimizer.zero_grad()
        part = data[2 * i + dist.get_rank()].unsqueeze(0)
        (model(part) - part).square().mean().backward()
        optimizer.step()
        job.step()
shown(net)
""",
    "plain ddp": """
dist.init_process_group("gloo")
model = DistributedDataParallel(net, bucket_cap_mb=0.02)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(STEPS):
    optimizer.zero_grad()
    part = data[2 * i + dist.get_rank()].unsqueeze(0)
    (model(part) - part).square().mean().backward()
    optimizer.step()
shown(net)
""",
    "fsdp": """
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
fully_shard(net, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with job:
    for i in range(STEPS):
        time.sleep(0.03)
        optimizer.zero_grad()
        part = data[2 * i + dist.get_rank()].unsqueeze(0)
        with job.communicating():
            (net(part) - part).square().mean().backward()
        optimizer.step()
        job.step()
print(json.dumps("done"), flush=True)
""",
    "lightning": """
import lightning.pytorch as pl
from polyrhythm_job.lightning import LightningCallback
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net
    def training_step(self, batch, index):
        time.sleep(0.03)
        return (self.net(batch) - batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
trainer = pl.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_steps=STEPS, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[LightningCallback(job)],
)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=2))
shown(net)
""",
    "hugging face": """
from transformers import Trainer, TrainingArguments
from polyrhythm_job.hugging_face import HuggingFaceCallback
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, rows):
        time.sleep(0.03)
        return {"loss": (self.net(rows) - rows).square().mean()}
arguments = TrainingArguments(
    output_dir=sys.argv[1], max_steps=STEPS, per_device_train_batch_size=2, use_cpu=True, ddp_backend="gloo",
    save_strategy="no", report_to=[], disable_tqdm=True,
)
trainer = Trainer(Model(), arguments, train_dataset=[{"rows": row} for row in data])
trainer.add_callback(HuggingFaceCallback(job, trainer))
trainer.train()
shown(net)
""",
}
NEEDS = {"lightning": "lightning", "hugging face": "transformers"}


def run(program: str, agent: str, folder: Path) -> list[str]:
    """What two ranks of one host print at their end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ranks = []
    for rank in range(2):
        own = {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "OMP_NUM_THREADS": "1",
            "TORCHELASTIC_RUN_ID": "1", "POLYRHYTHM_AGENT": agent, "GLOO_SOCKET_IFNAME": "lo",
        }  # fmt: skip
        argv = [sys.executable, "-c", PRELUDE + PROGRAMS[program], str(folder)]
        with (folder / f"rank{rank}.log").open("w") as log:
            ranks.append(
                subprocess.Popen(
                    argv,
                    env={**environment(), **own},
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    cwd=folder,
                )
            )
    printed = [rank.communicate(timeout=PATIENCE_S)[0] for rank in ranks]
    logs = "".join((folder / f"rank{rank}.log").read_text() for rank in range(2))
    assert [rank.returncode for rank in ranks] == [0, 0], logs
    return [json.loads(text.splitlines()[-1]) for text in printed]


@pytest.mark.parametrize("program", ["ddp", "fsdp", "lightning", "hugging face"])
def test_iterations_and_up_phases_are_reported_by_themselves(
    program: str, start_agent: Callable[..., AgentProcess], tmp_path: Path, hub: tuple[Hub, str]
) -> None:
    pytest.importorskip("torch")
    if program in NEEDS:
        pytest.importorskip(NEEDS[program])
    made, address = hub
    agent, hosts = str(tmp_path / "agent.sock"), {"h2": "127.0.1.2", "h3": "127.0.1.3"}
    start_agent(
        config_text(
            "h2",
            hosts["h2"],
            controller=address,
            addresses=hosts,
            agent=f'socket = "{agent}"',
            nic='driver = "none"',
        )
    )
    eventually(lambda: status(agent)["connected"], "a session")
    with_us = run(program, agent, tmp_path)
    assert with_us[0] == with_us[1]
    # The first six iterations are measured; then the job joins.
    eventually(lambda: len(made.bodies("iteration")) >= STEPS - 7, "reports")
    (join,) = made.bodies("job_join")
    assert join.period_ns >= 30 * MS
    assert join.phases
    assert join.phases[0].start_ns == 0
    assert all(phase.end_ns <= join.period_ns for phase in join.phases)
    for report in made.bodies("iteration"):
        assert 0 < report.communication_ns < report.end_ns - report.start_ns


def test_the_hook_changes_no_gradient(tmp_path: Path) -> None:
    """The same parameters, bit for bit, as without the library."""
    pytest.importorskip("torch")
    assert run("ddp", str(tmp_path / "nobody"), tmp_path) == run("plain ddp", "", tmp_path)
