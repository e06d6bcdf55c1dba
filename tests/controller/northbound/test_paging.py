# SPDX-License-Identifier: Apache-2.0
"""Pages of names, the flows in pages, and the pages of a difference of plans."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from fake_source import plan, running, view
from hypothesis import given
from hypothesis import strategies as st

from controller.northbound.paging import PageStart, SortedOnce, page, page_of_lists
from controller.northbound.plan_difference import difference
from controller.northbound.problems import OperationError
from polyrhythm.rest_client import all_pages

START = PageStart("jobs")


@given(st.lists(st.text(), unique=True).map(sorted), st.integers(1, 5))
def test_all_pages_together_are_the_list(names, most) -> None:
    seen, start = [], START
    while True:
        found, cursor = page(names, start, most)
        assert len(found) <= most
        seen += found
        if cursor is None:
            break
        start = START.at(cursor)
    assert seen == names


def test_a_list_may_change_between_two_pages() -> None:
    found, cursor = page(["a", "b", "c"], START, 2)
    assert found == ["a", "b"]
    assert page(["a", "c", "d"], START.at(cursor), 5) == (["c", "d"], None)


@pytest.mark.parametrize("cursor", ["", "?", "a", "____", "ä", "YQ", PageStart("hosts").cursor_after("a")])
def test_what_is_no_cursor_is_refused(cursor) -> None:
    with pytest.raises(OperationError, match="legal: `next` of a page"):
        START.at(cursor)
    assert page(["a", "b"], START.at(START.cursor_after("a")), 1) == (["b"], None)
    assert START.at(START.cursor_after("12")).number() == 12
    for name in ("", "x", "-1", "٣", "1" * 19):
        with pytest.raises(OperationError, match="legal: `next` of a page"):
            START.at(START.cursor_after(name)).number()


@given(st.lists(st.lists(st.text(), unique=True).map(sorted), max_size=5), st.integers(1, 5))
def test_all_pages_of_several_lists_together_are_the_lists(lists, most) -> None:
    seen: list[list[str]] = [[] for _ in lists]
    start = START
    while True:
        found, cursor = page_of_lists(lists, start, most)
        assert len(found) == len(lists)
        assert sum(map(len, found)) == most or cursor is None
        assert sum(map(len, found)) <= most
        for own, part in zip(seen, found, strict=True):
            own.extend(part)
        if cursor is None:
            break
        start = START.at(cursor)
    assert seen == lists


def test_what_is_no_cursor_of_several_lists_is_refused() -> None:
    for name in ("a", "2/a", "-1/a", "٣/a", "/"):
        with pytest.raises(OperationError, match="legal: `next` of a page"):
            page_of_lists([["a"], ["b"]], replace(START, last=name), 1)


def test_names_are_sorted_once_for_each_object() -> None:
    sorts = []

    def items(owner: list[str]) -> dict[str, int]:
        sorts.append(owner)
        return {name: len(name) for name in owner}

    names = SortedOnce(items)
    first, second = ["b", "aa"], ["b", "aa"]
    assert [names.of(owner) for owner in (first, first, second, second)] == [
        (["aa", "b"], {"b": 1, "aa": 2})
    ] * 4
    assert len(sorts) == 2
    assert sorts[1] is second


LISTS = {
    "jobs": ("jobs",),
    "counters": ("counters",),
    "counters?switch=leaf1&switch=spine2": ("counters",),
    "plan": ("jobs", "flows", "links", "spread"),
    "fabric/links?node=leaf1": ("links",),
    "fabric/switches?tier=spine": ("switches",),
}


@pytest.mark.slow
def test_the_pages_of_every_list_together_are_the_list() -> None:
    with running(view(5)) as server, httpx.Client(base_url=server.url + "api/v1/", timeout=60) as api:

        def read(path: str) -> dict[str, object]:
            return api.get(path).raise_for_status().json()

        of_jobs, of_hosts = read("jobs?most=1")["next"], read("fabric/hosts?most=1")["next"]
        for path, lists in LISTS.items():
            whole, mark = read(path), "&" if "?" in path else "?"
            assert whole["next"] is None, path
            items = sum(len(whole[name]) for name in lists)
            assert items > 1, path
            first = read(f"{path}{mark}most=1")
            assert sum(len(first[name]) for name in lists) == 1, path
            for most in (1, 3, items):
                together = all_pages(read, f"{path}{mark}most={most}")
                assert {n: together[n] for n in lists} == {n: whole[n] for n in lists}, (path, most)
            for wrong in ("%3F", of_hosts if path == "jobs" else of_jobs):
                assert api.get(f"{path}{mark}cursor={wrong}").status_code == 404, (path, wrong)


def test_a_plan_that_is_replaced_between_two_pages_is_read_again() -> None:
    pages = iter(
        [
            {"version": 1, "jobs": ["a"], "next": "x"},
            {"version": 2, "jobs": ["c"], "next": None},
            {"version": 2, "jobs": ["b"], "next": "y"},
            {"version": 2, "jobs": ["c"], "next": None},
        ]
    )
    asked = []

    def get(path: str) -> dict[str, object]:
        asked.append(path)
        return next(pages)

    assert all_pages(get, "plan") == {"version": 2, "jobs": ["b", "c"], "next": None}
    assert asked == ["plan", "plan?cursor=x", "plan", "plan?cursor=y"]
    assert all_pages(lambda path: None, "plan") is None


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
    assert difference(before, replace(before, version=4), START, 10).model_dump() == {
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
    found = difference(before, after, START, 2)
    assert [(j.job, j.before.level, j.after and j.after.level) for j in found.jobs] == [
        ("vgg16", 2, 0),
        ("vgg19", 1, None),
    ]
    assert [f.flow for f in found.flows] == [name, "vgg19/h1>h5"]
    assert (found.flows[0].before.path[2], found.flows[0].after.path[2]) == ("spine2", "spine1")
    rest = difference(before, after, START.at(found.next), 2)
    assert ([f.flow for f in rest.flows], rest.next) == (["vgg19/h5>h1"], None)
    assert difference(after, before, START, 5).flows[1].before is None
