# SPDX-License-Identifier: Apache-2.0
"""A callback for Lightning's Trainer. Needs lightning or pytorch_lightning; only this module imports it."""

from __future__ import annotations

from typing import Any

from torch.nn.parallel import DistributedDataParallel

from polyrhythm_job.ddp import mark_communication
from polyrhythm_job.job import polyrhythm_job

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback


class LightningCallback(Callback):  # type: ignore[misc]
    """Runs `job` around the training: each step of the optimizer is an iteration.

    With DistributedDataParallel on CPUs the Up phases are marked; see `mark_communication`.
    """

    def __init__(self, job: polyrhythm_job) -> None:
        self._job = job
        self._steps = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The job begins."""
        self._job.__enter__()
        self._steps = trainer.global_step
        if isinstance(trainer.strategy.model, DistributedDataParallel):
            mark_communication(self._job, trainer.strategy.model)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """An iteration ends, unless gradients are still accumulated."""
        if trainer.global_step != self._steps:
            self._steps = trainer.global_step
            self._job.step()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The job ends, also after an error."""
        self._job.__exit__(None, None, None)
