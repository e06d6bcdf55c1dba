# SPDX-License-Identifier: Apache-2.0
"""Pages of names, the flows in pages, and the pages of a difference of plans."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from fake_source import plan, running, view
from hypothesis import given
from hypothesis import strategies as st

from controller.northbound.paging import cursor_after, page
from controller.northbound.plan_difference import difference
from controller.northbound.problems import OperationError


@given(st.lists(st.text(), unique=True).map(sorted), st.integers(1, 5))
def test_all_pages_together_are_the_list(names, most) -> None:
    seen, cursor = [], None
    while True:
        found, cursor = page(names, cursor, most)
        assert len(found) <= most
        seen += found
        if cursor is None:
            break
    assert seen == names


def test_a_list_may_change_between_two_pages() -> None:
    found, cursor = page(["a", "b", "c"], None, 2)
    assert found == ["a", "b"]
    assert page(["a", "c", "d"], cursor, 5) == (["c", "d"], None)


@pytest.mark.parametrize("cursor", ["?", "a", "____", "ä", "YQ"])
def test_what_is_no_cursor_is_refused(cursor) -> None:
    with pytest.raises(OperationError, match="legal: `next` of a page"):
        page(["a"], cursor, 1)
    assert page(["a", "b"], cursor_after("a"), 1) == (["b"], None)


def test_flows_come_in_pages_and_by_job_and_by_what_they_cross() -> None:
    with running(view(5)) as server, httpx.Client(base_url=server.url + "api/v1/", timeout=60) as api:

        def names(**query: object) -> list[str]:
            found, cursor = [], None
            while True:
                asked = {**query, "most": 2} | ({"cursor": cursor} if cursor else {})
                body = api.get("flows", params=asked).raise_for_status().json()
                assert body["version"] == 3
                found += [f["flow"] for f in body["flows"]]
                cursor = body["next"]
                if cursor is None:
                    return found

        every = names()
        assert every == sorted(view(5).plan.flows)
        assert names(job="vgg16") == ["vgg16/h2>h6", "vgg16/h6>h2"]
        assert names(through="spine3") == ["resnet50/h3>h7", "resnet50/h7>h3"]
        assert names(through="spine2-leaf1") == names(through="leaf1-spine2") == names(through="spine2")
        assert names(through="leaf1-leaf2") == names(job="x") == []
        assert api.get("flows?cursor=%3F").status_code == 404
        assert api.get("flows?most=0").json()["faults"][0]["where"] == "query.most"
        said = api.get("jobs/vgg16/explain").raise_for_status().json()
        assert (said["job"], said["version"], said["level"]) == ("vgg16", 3, 2)
        assert api.get("jobs/x/explain").status_code == 404
        server.publish(replace(view(5), plan=None))
        assert api.get("jobs/vgg16/explain").json()["detail"].startswith("no plan contains job vgg16")
        assert api.get("flows").json() == {"version": None, "flows": [], "next": None}


def test_plans_differ_where_a_decision_does() -> None:
    before = plan()
    assert difference(before, replace(before, version=4), None, 10).model_dump() == {
        "before": 3,
        "after": 4,
        "policies": ("polyrhythm", "polyrhythm"),
        "jobs": (),
        "flows": (),
        "next": None,
    }
    name = "vgg16/h2>h6"
    moved = replace(before.flows[name], path=("h2", "leaf1", "spine1", "leaf2", "h6"), why="another reason")
    reworded = replace(before.flows["vgg16/h6>h2"], why="another reason")
    flows = {n: f for n, f in before.flows.items() if not n.startswith("vgg19/")}
    after = replace(
        before,
        version=5,
        flows={**flows, name: moved, reworded.flow: reworded},
        jobs={"vgg16": replace(before.jobs["vgg16"], level=0), "resnet50": before.jobs["resnet50"]},
    )
    found = difference(before, after, None, 2)
    assert [(j.job, j.before.level, j.after and j.after.level) for j in found.jobs] == [
        ("vgg16", 2, 0),
        ("vgg19", 1, None),
    ]
    assert [f.flow for f in found.flows] == [name, "vgg19/h1>h5"]
    assert (found.flows[0].before.path[2], found.flows[0].after.path[2]) == ("spine2", "spine1")
    rest = difference(before, after, found.next, 2)
    assert ([f.flow for f in rest.flows], rest.next) == (["vgg19/h5>h1"], None)
    assert difference(after, before, None, 5).flows[1].before is None
