# SPDX-License-Identifier: Apache-2.0
"""A callback for Hugging Face's Trainer. Needs transformers, which only this module imports."""

from __future__ import annotations

from typing import Any

from torch.nn.parallel import DistributedDataParallel
from transformers import Trainer, TrainerCallback

from polyrhythm_job.ddp import mark_communication
from polyrhythm_job.job import polyrhythm_job


class HuggingFaceCallback(TrainerCallback):  # type: ignore[misc]
    """Runs `job` around the training of `trainer`: each step of the optimizer is an iteration.

    `trainer.add_callback(HuggingFaceCallback(job, trainer))`. With DistributedDataParallel on CPUs the Up
    phases are marked; see `mark_communication`.
    """

    def __init__(self, job: polyrhythm_job, trainer: Trainer) -> None:
        self._job = job
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The job begins."""
        self._job.__enter__()
        if isinstance(self._trainer.model_wrapped, DistributedDataParallel):
            mark_communication(self._job, self._trainer.model_wrapped)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An iteration ends."""
        self._job.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The job ends."""
        self._job.__exit__(None, None, None)
