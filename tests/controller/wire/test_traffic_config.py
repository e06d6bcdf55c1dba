# SPDX-License-Identifier: Apache-2.0
"""Job descriptions as they are written, and the bytes of models against formulas worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from controller.wire.traffic import Parallelism, Traffic, Volumes, flows_of, spread
from controller.wire.traffic_config import TrafficConfig
from polyrhythm_files import ConfigError, convert, value_document


def traffic(value: dict[str, Any], gpus: int) -> Traffic:
    return convert(value_document(value), TrafficConfig).traffic(gpus)


GPT3 = {
    "parallelism": {"tensor": 8, "pipeline": 8, "data": 2},
    "transformer": {
        "parameters": 175e9, "layers": 96, "hidden": 12288, "sequence": 2048, "micro_batches": 16,
    },
}  # fmt: skip


def test_gpt_3_on_128_gpus_has_the_bytes_of_the_formulas() -> None:
    found = traffic(GPT3, 128)
    # By hand. Gradients: 4 B x 175e9 / 64 = 10,937,500,000 B a GPU. Activations of a micro-batch:
    # 1 x 2048 x 12288 elements of 2 B = 50,331,648 B; 16 of them are 805,306,368 B. Tensor: 4 all-reduces in
    # each of the stage's 12 layers = 48 x 805,306,368. Pipeline: an eighth of 805,306,368 each way.
    assert found.volumes == Volumes(data=10_937_500_000, tensor=38_654_705_664, pipeline=100_663_296)
    flows = flows_of(found, spread([(f"h{k}", [f"h{k}"]) for k in range(1, 17)], 128))
    # 8 GPUs a host hold one tensor group. Copies alternate (h1: stage 0 copy 0, h2: stage 0 copy 1, h3:
    # stage 1 copy 0), so rings join h1 and h2, h3 and h4, ... A ring of two sends 2 x 1 / 2 of the bytes.
    reduced = {(f.src, f.dst): f.reduce_bytes for f in flows if f.reduce_bytes}
    assert reduced == {
        pair: 8 * 10_937_500_000
        for k in range(1, 17, 2)
        for pair in ((f"h{k}", f"h{k + 1}"), (f"h{k + 1}", f"h{k}"))
    }
    passed = {(f.src, f.dst): f.exchange_bytes for f in flows if f.exchange_bytes}
    assert passed == {
        pair: 8 * 100_663_296
        for k in range(1, 15)
        for pair in ((f"h{k}", f"h{k + 2}"), (f"h{k + 2}", f"h{k}"))
    }
    assert len(flows) == 16 + 28


def test_tensor_groups_over_two_hosts_send_what_megatron_says() -> None:
    # 3.2 of the paper: 8 b s h (t - 1) / t elements for each layer, device and micro-batch.
    model = {
        "parameters": 1e9,
        "layers": 6,
        "hidden": 64,
        "sequence": 32,
        "micro_batch": 3,
        "micro_batches": 5,
    }
    found = traffic({"parallelism": {"tensor": 4, "pipeline": 2}, "transformer": model}, 8)
    flows = flows_of(found, spread([(f"h{k}", [f"h{k}"]) for k in range(8)], 8))
    ring = 8 * 3 * 32 * 64 * 3 // 4 * 2 * 3 * 5
    handed = 3 * 32 * 64 * 2 * 5 // 4
    assert {f.exchange_bytes for f in flows} == {ring, handed}
    assert sum(f.exchange_bytes == ring for f in flows) == 8
    assert sum(f.exchange_bytes == handed for f in flows) == 8
    assert not any(f.reduce_bytes for f in flows)


def test_a_mixture_of_experts_dispatches_and_combines_both_ways() -> None:
    model = {
        "parameters": 1e6, "layers": 4, "hidden": 16, "sequence": 8, "expert_layers": 2, "top_k": 2,
        "expert_parameters": 8e6,
    }  # fmt: skip
    found = traffic({"parallelism": {"data": 4, "expert": 2}, "transformer": model}, 4)
    # 4 all-to-alls a layer, 2 layers, 2 experts a token: 16 x 8 x 16 elements of 2 B. Each GPU holds half of
    # the experts.
    assert found.volumes == Volumes(data=4_000_000, expert=4 * 2 * 2 * 8 * 16 * 2, expert_data=16_000_000)


def test_keys_override_the_model_and_a_collective_alone_is_a_job() -> None:
    assert traffic({**GPT3, "tensor_bytes": 0, "data_bytes": 7.5}, 128).volumes == Volumes(
        data=8, tensor=0, pipeline=100_663_296
    )
    alone = traffic({"collective": "all_to_all", "data_bytes": 1000, "queue_pairs": 4}, 8)
    assert (alone.parallelism, alone.volumes) == (Parallelism(data=8), Volumes(1000))
    assert len(flows_of(alone, spread([("a", ["a"]), ("b", ["b"])], 8))) == 8


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"collective": "star"}, "collective"),
        ({"parallelism": {"data": 6, "expert": 4}}, "parallelism.expert: 4 does not divide data"),
        ({"parallelism": {"tensor": 0}}, "parallelism.tensor"),
        ({"data_bytes": -1}, "data_bytes"),
        ({"data_bytes": float("inf")}, "data_bytes"),
        ({"queue_pairs": 129}, "queue_pairs"),
        ({"byts": 1}, "byts"),
    ],
)
def test_wrong_values_are_named(value: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        traffic(value, 8)


def test_a_model_beyond_any_job_is_refused() -> None:
    huge = {"parameters": 1e15, "layers": 1, "hidden": 10_000_000, "sequence": 1_000_000_000}
    with pytest.raises(ValueError, match=r"data_bytes: .* legal: up to"):
        traffic({"transformer": huge}, 4)
