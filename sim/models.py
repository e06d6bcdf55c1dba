# SPDX-License-Identifier: Apache-2.0
"""Models that traces name: their number of parameters, and a default iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sim.shape import PhaseShape, Shape

BYTES_PER_PARAMETER = 4
OVERLAP_START = 0.5
"""The part of the compute after which gradients begin to be sent; CRUX's traces assume the same kind of
overlap, and no trace says."""


@dataclass(frozen=True, slots=True)
class Model:
    """Parameters as published with each model; `compute_ms` of an iteration is ours, of the usual order,
    and used only where a trace has none."""

    parameters: float
    compute_ms: float


MODELS: Mapping[str, Model] = {
    "vgg11": Model(133e6, 120),
    "vgg": Model(138e6, 150),
    "vgg16": Model(138e6, 150),
    "vgg19": Model(144e6, 170),
    "alexnet": Model(61e6, 60),
    "resnet": Model(25.6e6, 200),
    "resnet18": Model(11.7e6, 100),
    "resnet50": Model(25.6e6, 200),
    "wideresnet101": Model(127e6, 250),
    "mobilenetv3": Model(5.5e6, 60),
    "shufflenet_v2_x1_0": Model(2.3e6, 50),
    "bert": Model(340e6, 300),
    "roberta": Model(355e6, 300),
    "gpt2": Model(1.5e9, 450),
    "a2c": Model(1e6, 500),
    "dqn": Model(2e6, 500),
    "word_embedding": Model(1e9, 300),
    "dlm": Model(1e9, 400),
    "gpt-13b": Model(13e9, 2500),
    "llama": Model(7e9, 1500),
    "llama_30b": Model(30e9, 4000),
    "66b": Model(66e9, 8000),
    "llama2": Model(70e9, 8000),
    "unknown": Model(1e9, 500),
}

# Beyond this the optimizer's state is split over the GPUs of a server, and so is what each sends.
_SPLIT_PARAMETERS = 2e9
_SPLIT_WAYS = 8


def model_named(name: str) -> Model:
    """A model by its name in any case. A name that is not in the table gets the figures of "unknown"."""
    return MODELS.get(name.lower(), MODELS["unknown"])


def data_parallel(name: str, compute_ms: float = 0.0) -> Shape:
    """The default iteration: compute, and from the middle of the compute on a ring all-reduce of the
    gradients over the servers of the job, as one step. Long traces need no more detail.
    """
    model = model_named(name)
    compute = round((compute_ms or model.compute_ms) * 1e6)
    before = round(compute * OVERLAP_START)
    size = model.parameters * BYTES_PER_PARAMETER
    if model.parameters > _SPLIT_PARAMETERS:
        size /= _SPLIT_WAYS
    return Shape((PhaseShape("fused_ring", size, before_ns=before, beside_ns=compute - before),))
