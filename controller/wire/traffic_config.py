# SPDX-License-Identifier: Apache-2.0
"""The description of a job's traffic as people and training code write it: the key `traffic` of scenarios, of
agents' jobs, of a join request and of the job files of `polyrhythm route`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from controller.wire.collectives import Collective
from controller.wire.traffic import Order, Parallelism, Traffic, Volumes
from polyrhythm_files import InvalidValueError, Section, finite

MAX_BYTES = 10**15
"""Of a rank in an iteration (chosen: as of a flow, far beyond any job)."""

_Group = Annotated[int, Meta(ge=1, le=1_000_000)]
_Bytes = Annotated[float, finite(0, MAX_BYTES)]


class ParallelismConfig(Section, frozen=True, kw_only=True):
    """How the model is split. tensor x pipeline x data is the number of GPUs of the job."""

    tensor: Annotated[_Group, Meta(description="GPUs that share each layer")] = 1
    pipeline: Annotated[_Group, Meta(description="stages, one after another")] = 1
    data: Annotated[_Group, Meta(description="copies of the model")] = 1
    expert: Annotated[_Group, Meta(description="copies that share one set of experts; divides data")] = 1
    order: Annotated[
        Literal["tensor-data-pipeline", "tensor-pipeline-data"],
        Meta(description="how GPUs are numbered, the fastest dimension first; the default is Megatron-LM's"),
    ] = "tensor-data-pipeline"

    def __post_init__(self) -> None:
        if self.data % self.expert:
            raise InvalidValueError(
                ("expert",), f"{self.expert} does not divide data; legal: a divisor of {self.data}"
            )

    def layout(self) -> Parallelism:
        """The value."""
        return Parallelism(self.tensor, self.pipeline, self.data, self.expert, Order(self.order))


class TransformerConfig(Section, frozen=True, kw_only=True):
    """A transformer model, from which the bytes follow (Narayanan et al., Megatron-LM, SC 2021, 3.2)."""

    parameters: Annotated[float, finite(1, 1e15, what="of the whole model, without those of experts")]
    layers: Annotated[int, Meta(ge=1, le=100_000, description="of the whole model")]
    hidden: Annotated[int, Meta(ge=1, le=10_000_000, description="size of a token's vector")]
    sequence: Annotated[int, Meta(ge=1, le=1_000_000_000, description="tokens of a sequence")]
    micro_batch: Annotated[int, Meta(ge=1, le=1_000_000, description="sequences in a micro-batch")] = 1
    micro_batches: Annotated[int, Meta(ge=1, le=1_000_000, description="of one copy in an iteration")] = 1
    element_bytes: Annotated[int, Meta(ge=1, le=8, description="of an activation; 2: 16 bits")] = 2
    gradient_bytes: Annotated[int, Meta(ge=1, le=8, description="of a parameter's gradient; 4: 32 bits")] = 4
    expert_layers: Annotated[int, Meta(ge=0, le=100_000, description="layers with experts")] = 0
    expert_parameters: Annotated[float, finite(0, 1e15, what="of all experts of the model")] = 0.0
    top_k: Annotated[int, Meta(ge=1, le=1024, description="experts that each token is sent to")] = 1

    def volumes(self, layout: Parallelism) -> Volumes:
        """Bytes of one rank of the stage with the most layers.

        b sequences of s tokens of size h in a micro-batch; m micro-batches; t, p: sizes of the tensor and
        pipeline groups. The sizes before the collectives' own factors are:

        - data: gradient bytes x parameters / (t p) (routing paper, 5.1);
        - tensor: two all-reduces of b s h elements forward and two backward, for each layer of the stage
          (Megatron-LM, 3.2);
        - pipeline: b s h / t elements each way for each micro-batch (3.2, and 4.1: each rank of the tensor
          group sends its part);
        - expert: dispatch and combine, forward and backward, of top_k x b s h / t elements for each layer
          with experts (Lepikhin et al., GShard, 2020, 3.2);
        - expert gradients: gradient bytes x parameters of experts / (t p expert).
        """
        t, p = layout.tensor, layout.pipeline
        activations = self.micro_batch * self.sequence * self.hidden * self.element_bytes * self.micro_batches
        stage = -(-self.layers // p)
        return Volumes(
            data=_up(self.gradient_bytes * self.parameters / (t * p)),
            tensor=4 * activations * stage if t > 1 else 0,
            pipeline=-(-activations // t) if p > 1 else 0,
            expert=-(-4 * self.top_k * activations * -(-self.expert_layers // p) // t),
            expert_data=_up(self.gradient_bytes * self.expert_parameters / (t * p * layout.expert)),
        )


class TrafficConfig(Section, frozen=True, kw_only=True):
    """What a job is, from which its flows follow: a collective, or a parallelism with bytes of its groups.

    Bytes are of one GPU in an iteration. With `transformer` they follow from the model, and a key here
    overrides one of them.
    """

    collective: Annotated[
        Literal["ring", "tree", "hierarchical", "all_gather", "reduce_scatter", "all_to_all", "send_receive"],
        Meta(description="of each data-parallel group; ring, tree and hierarchical are all-reduces"),
    ] = "ring"
    parallelism: Annotated[
        ParallelismConfig | None, Meta(description="without it all GPUs are one data-parallel group")
    ] = None
    transformer: Annotated[
        TransformerConfig | None, Meta(description="the model, from which the bytes of the groups follow")
    ] = None
    data_bytes: Annotated[
        _Bytes | None, Meta(description="buffer of the data-parallel collective, such as gradients")
    ] = None
    tensor_bytes: Annotated[_Bytes | None, Meta(description="given into tensor-parallel all-reduces")] = None
    pipeline_bytes: Annotated[_Bytes | None, Meta(description="over a stage boundary, each way")] = None
    expert_bytes: Annotated[_Bytes | None, Meta(description="given into all-to-alls between experts")] = None
    expert_data_bytes: Annotated[
        _Bytes | None, Meta(description="buffer of the collective of the ranks with the same experts")
    ] = None
    queue_pairs: Annotated[
        int, Meta(ge=1, le=128, description="of each pair of NICs and kind of traffic; they share the bytes")
    ] = 1
    exchanges: Annotated[
        int,
        Meta(
            ge=1,
            le=63,
            description="times an iteration that GPUs exchange tensor, pipeline and expert bytes and compute",
        ),
    ] = 1

    def traffic(self, gpus: int) -> Traffic:
        """The value, for a job of `gpus` GPUs. Raises InvalidValueError with the path of a wrong value."""
        layout = self.parallelism.layout() if self.parallelism is not None else Parallelism(data=gpus)
        model = self.transformer.volumes(layout) if self.transformer is not None else Volumes()
        volumes = Volumes(
            data=_either(self.data_bytes, model.data),
            tensor=_either(self.tensor_bytes, model.tensor),
            pipeline=_either(self.pipeline_bytes, model.pipeline),
            expert=_either(self.expert_bytes, model.expert),
            expert_data=_either(self.expert_data_bytes, model.expert_data),
        )
        for key, size in (
            ("data", volumes.data),
            ("tensor", volumes.tensor),
            ("pipeline", volumes.pipeline),
            ("expert", volumes.expert),
            ("expert_data", volumes.expert_data),
        ):
            if size > MAX_BYTES:
                raise InvalidValueError(
                    (f"{key}_bytes",), f"{size:,} bytes of one GPU; legal: up to {MAX_BYTES:,}"
                )
        return Traffic(layout, volumes, Collective(self.collective), self.queue_pairs, self.exchanges)


def _either(given: float | None, computed: int) -> int:
    return computed if given is None else _up(given)


def _up(size: float) -> int:
    return -int(-size // 1)
