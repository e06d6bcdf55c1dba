# SPDX-License-Identifier: Apache-2.0
"""What a training process says of its job when it joins."""

from __future__ import annotations

from typing import Any

import pytest

from hostagent.external_worker import JoinMessage
from polyrhythm_files import convert, value_document

LINE = 10**11


def join(**fields: Any) -> JoinMessage:
    base = {"job": "j", "hosts": ["h1", "h2", "h3", "h4"], "rank": 0, "period_ns": 10**9, "gpus": 8}
    return convert(value_document({**base, "phases": [[0, 10**8]], **fields}), JoinMessage)


def test_the_flows_follow_from_what_the_job_is() -> None:
    # Two GPUs a host: a hierarchical ring in two rings of four hosts, 2 x 3 / 4 of half the bytes each.
    spec = join(traffic={"collective": "hierarchical", "data_bytes": 8_000_000}).spec(LINE)
    around = [("h1", "h2"), ("h2", "h3"), ("h3", "h4"), ("h4", "h1")]
    assert {
        (a, b): size for (name, a, b), size in zip(spec.flows(), spec.flow_bytes().values(), strict=True)
    } == dict.fromkeys(around, 12_000_000)
    assert spec.announced().phases[0].rate_bps == 12_000_000 * 8 * 10


def test_neighbouring_hosts_may_be_the_rails_of_one_server() -> None:
    spec = join(hosts=["a.1", "a.2", "b.1", "b.2"], rails=2, traffic={
        "parallelism": {"tensor": 4, "data": 2}, "data_bytes": 100, "tensor_bytes": 7, "queue_pairs": 2,
    }).spec(LINE)  # fmt: skip
    # Tensor groups stay inside a server; each rail carries two of the four rings over two queue pairs.
    assert spec.flow_bytes() == {
        f"j/{x}.{r}>{y}.{r}{part}": 100 for r in (1, 2) for x, y in ("ab", "ba") for part in ("", "#1")
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"traffic": {"data_bytes": 0}}, "job j: traffic: the job sends nothing over the fabric"),
        ({"traffic": {"parallelism": {"tensor": 3}}}, "job j: traffic: tensor 3 x pipeline 1 x data 1 are 3 GPUs"),
        ({"traffic": {"data_bytes": 1}, "gpus": 6}, "job j: traffic: 6 GPUs on 4 hosts are not the same"),
        ({"traffic": {"data_bytes": 1}, "rails": 3}, "4 hosts, 3 rails"),
        ({"traffic": {"data_bytes": 1}, "hosts": ["h1", "h1"]}, "legal: each host once"),
        ({"traffic": {"data_bytes": 1}, "bytes_per_flow": 5}, "follow from traffic; legal: one of both"),
        ({"traffic": {"data_bytes": 1}, "ring": [["h1", "h2"]]}, "follow from traffic; legal: one of both"),
        (
            {"traffic": {"data_bytes": 1, "collective": "all_to_all"}, "gpus": 4_000},
            "15,996,000 pairs of GPUs",
        ),
    ],
)  # fmt: skip
def test_a_job_that_cannot_be_is_refused_in_one_line(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        join(**fields).spec(LINE)
    assert "\n" not in str(refused.value)
