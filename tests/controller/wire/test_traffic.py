# SPDX-License-Identifier: Apache-2.0
"""Flows of a job, from its collective, parallelism and the places of its ranks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.wire.collectives import Collective
from controller.wire.limits import MAX_FLOWS_OF_JOB
from controller.wire.traffic import (
    Order,
    Parallelism,
    Traffic,
    TrafficError,
    TrafficFlow,
    Volumes,
    flow_name,
    flows_of,
    spread,
)


def hosts(count: int, rails: int = 1) -> list[tuple[str, list[str]]]:
    return [
        (f"h{m}", [f"h{m}.{r}" for r in range(1, rails + 1)] if rails > 1 else [f"h{m}"])
        for m in range(1, count + 1)
    ]


def total(flows: tuple[TrafficFlow, ...]) -> int:
    return sum(f.exchange_bytes + f.reduce_bytes for f in flows)


def test_rings_join_the_ranks_that_hold_the_same_parameters() -> None:
    # The routing paper's BLOOM: copies of 48 GPUs, numbered in blocks, one NIC a GPU.
    bloom = Parallelism(4, 12, 4, order=Order.TENSOR_PIPELINE_DATA)
    assert bloom.ranks == 192
    found = flows_of(Traffic(bloom, Volumes(data=800)), spread(hosts(192), 192))
    assert len(found) == 192
    assert {f.reduce_bytes for f in found} == {2 * 3 * 800 // 4}
    assert all((int(f.dst[1:]) - int(f.src[1:])) % 192 == 48 for f in found)
    assert set(Counter(f.src for f in found).values()) == {1}


def test_the_numbering_of_ranks_is_megatrons() -> None:
    # Megatron-LM's own example: 16 GPUs, tensor 2, pipeline 4, so data 2.
    layout = Parallelism(tensor=2, pipeline=4, data=2)
    assert list(layout.data_groups()) == [
        [0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15],
    ]  # fmt: skip
    assert next(iter(layout.tensor_groups())) == [0, 1]
    assert sorted(layout.pipelines()) == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]


def test_a_server_keeps_its_own_traffic_to_itself() -> None:
    job = Parallelism(2, 2, 2, order=Order.TENSOR_PIPELINE_DATA)
    found = flows_of(Traffic(job, Volumes(100, tensor=50, pipeline=7)), spread(hosts(4), 8))
    # Two GPUs a host: tensor groups stay inside; a host has two ranks of each pipeline and ring.
    exchanged = {(f.src, f.dst): f.exchange_bytes for f in found if f.exchange_bytes}
    assert exchanged == {("h1", "h2"): 14, ("h2", "h1"): 14, ("h3", "h4"): 14, ("h4", "h3"): 14}
    apart = flows_of(Traffic(job, Volumes(tensor=50)), spread(hosts(8), 8))
    assert len(apart) == 8
    assert {f.exchange_bytes for f in apart} == {50}


def test_gpus_use_the_nic_of_their_rail() -> None:
    places = spread(hosts(2, rails=4), 16)
    assert places.nics[:8] == ("h1.1", "h1.1", "h1.2", "h1.2", "h1.3", "h1.3", "h1.4", "h1.4")
    found = flows_of(Traffic(Parallelism(8, 1, 2), Volumes(100)), places)
    assert {(f.src, f.dst) for f in found} == {
        (f"{a}.{r}", f"{b}.{r}") for a, b in (("h1", "h2"), ("h2", "h1")) for r in range(1, 5)
    }
    assert {f.reduce_bytes for f in found} == {200}
    assert spread(hosts(1, rails=4), 2).nics == ("h1.1", "h1.2")


def test_experts_talk_inside_their_group_and_reduce_across_groups() -> None:
    layout = Parallelism(data=4, expert=2)
    places = spread(hosts(4), 4)
    found = flows_of(Traffic(layout, Volumes(expert=100)), places)
    assert {(f.src, f.dst, f.exchange_bytes) for f in found} == {
        ("h1", "h2", 50), ("h2", "h1", 50), ("h3", "h4", 50), ("h4", "h3", 50),
    }  # fmt: skip
    found = flows_of(Traffic(layout, Volumes(expert_data=100)), places)
    assert {(f.src, f.dst) for f in found} == {("h1", "h3"), ("h3", "h1"), ("h2", "h4"), ("h4", "h2")}


@given(
    st.sampled_from(list(Collective)),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 10**9),
)
def test_queue_pairs_and_exchanges_share_the_bytes(
    collective: Collective, tensor: int, pipeline: int, data: int, qps: int, parts: int, size: int
) -> None:
    layout = Parallelism(tensor, pipeline, data)
    volumes = Volumes(data=size, tensor=size // 2, pipeline=size // 3)
    places = spread(hosts(layout.ranks), layout.ranks)
    talks = (data > 1 and size) or (tensor > 1 and size // 2) or (pipeline > 1 and size // 3)
    if not talks:
        with pytest.raises(TrafficError, match="sends nothing"):
            flows_of(Traffic(layout, volumes, collective), places)
        return
    whole = flows_of(Traffic(layout, volumes, collective), places)
    split = flows_of(Traffic(layout, volumes, collective, qps, parts), places)
    assert len({flow_name("j", f.src, f.dst, f.number) for f in split}) == len(split)
    assert sum(f.reduce_bytes for f in split) == sum(f.reduce_bytes for f in whole)
    over = parts * sum(f.exchange_bytes for f in split) - sum(f.exchange_bytes for f in whole)
    assert 0 <= over < parts * len(whole)


@pytest.mark.parametrize(
    ("traffic", "gpus", "words"),
    [
        (
            Traffic(Parallelism(2, 2, 2), Volumes(1)),
            16,
            "2 x pipeline 2 x data 2 are 8 GPUs, and the job has 16",
        ),
        (Traffic(Parallelism(data=4), Volumes()), 4, "sends nothing over the fabric"),
        (Traffic(Parallelism(data=4), Volumes(1), queue_pairs=0), 4, "1 or more"),
        (Traffic(Parallelism(data=4096), Volumes(1), Collective.ALL_TO_ALL), 4096, "16,773,120 pairs"),
        (
            Traffic(Parallelism(data=1024), Volumes(10**6), queue_pairs=128),
            1024,
            f"up to {MAX_FLOWS_OF_JOB:,}",
        ),
        (
            Traffic(Parallelism(data=512), Volumes(10**6), Collective.ALL_TO_ALL),
            512,
            f"more than {MAX_FLOWS_OF_JOB:,}",
        ),
        (Traffic(Parallelism(data=2_000_000), Volumes(1)), 2_000_000, "GPUs; legal: up to 1,000,000"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(traffic: Traffic, gpus: int, words: str) -> None:
    with pytest.raises(TrafficError, match=words) as refused:
        flows_of(traffic, spread(hosts(min(gpus, 4096)), gpus))
    assert "legal:" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_gpus_that_cannot_be_spread_are_refused() -> None:
    with pytest.raises(
        TrafficError, match="10 GPUs on 4 hosts are not the same number on each; legal: a multi"
    ):
        spread(hosts(4), 10)
    with pytest.raises(TrafficError, match="expert 3 does not divide data 4"):
        Parallelism(data=4, expert=3)
    with pytest.raises(TrafficError, match="tensor 0"):
        Parallelism(0, 1, 1)
