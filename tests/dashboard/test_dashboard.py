# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser that reaches our server and nothing else."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from fake_source import CAPACITY, JOBS, TOPOLOGY, FakeStatus, Running, running, view
from page_rig import ARGS, CHROMIUM, Watched, axe_findings_of_themes

from controller.model.view import Alarm, LinkLoad, StrayCounter, SwitchView
from controller.northbound.cut_routes import CutLinkOut
from controller.northbound.health import NotReady
from controller.northbound.history_routes import (
    EventOut,
    EventsOut,
    HistoryKind,
    LinkColumnsOut,
    MeasuredPastOut,
    MomentOut,
    PastJobOut,
    PastPlanInForceOut,
)
from controller.northbound.operations import Operations
from controller.northbound.paging import PageStart
from controller.wire.limits import MAX_WEB_REQUESTS
from topo.generate import leaf_spine

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="no browser: install Debian's chromium (apt-get install chromium)"
)
sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
expect = sync_api.expect
# A loaded machine takes its time to draw.
expect.set_options(timeout=30_000)

VIEWS = ("fabric", "jobs?pick=job:vgg19", "circles", "timeline", "what-if", "operations?pick=switch:leaf1")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with sync_api.sync_playwright() as playwright:
        program = playwright.chromium.launch(executable_path=str(CHROMIUM), headless=True, args=ARGS)
        yield program
        program.close()


@pytest.fixture
def server() -> Iterator[Running]:
    with running(view(0)) as handle:
        yield handle


@pytest.fixture
def watched(browser: object, server: Running) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    result = Watched(context.new_page(), server.url)
    yield result
    context.close()
    assert result.foreign == []
    assert result.errors == []


def picture(page: object) -> str:
    """What the canvas shows, once it has been drawn anew."""
    expect(page.locator(".canvas canvas")).to_be_visible()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate("document.querySelector('.canvas canvas').toDataURL()")


def test_shows_jobs_links_and_facts_and_follows_the_state(watched: Watched, server: Running) -> None:
    page = watched.page
    expect(page.locator("#connection")).to_contain_text("live")
    rows = page.locator("#jobs tr[data-row]")
    expect(rows).to_have_count(len(JOBS))
    expect(page.locator("#facts")).to_contain_text("6 of 6")
    expect(page.locator("#facts")).to_contain_text("1 down")
    mean = page.locator("#jobs tr[data-row=vgg16] td").first
    expect(mean).to_have_text(f"{view(0).jobs[1].mean_ms:.1f}")
    server.publish(view(41))
    expect(mean).to_have_text(f"{view(41).jobs[1].mean_ms:.1f}")
    expect(page.locator("#jobs .measured")).to_contain_text(f"{view(41).time_ns / 1e9:.1f} s")


def test_down_idle_unknown_and_busy_links_look_different(watched: Watched, server: Running) -> None:
    page = watched.page
    expect(page.locator("#connection")).to_contain_text("live")
    links = {"idle": 0.0, "busy": 1.0}
    seen = {}
    base = replace(view(1, down=frozenset()), jobs=(), links=())
    one, back = ("leaf1", 5, "spine1", 1), ("spine1", 1, "leaf1", 5)
    shown = {name: (LinkLoad(*one, int(load * CAPACITY), load, 7, True),) for name, load in links.items()} | {
        "down": tuple(LinkLoad(*ends, 0, 0.0, 0, False) for ends in (one, back)),
        "unknown": (),
    }
    for second, (name, loads) in enumerate(shown.items(), 2):
        server.publish(replace(base, time_ns=second * 1_000_000_000, links=loads))
        # The picture is of that view once the page tells its time.
        expect(page.locator("#facts")).to_contain_text(f"Fabric time{second}.0 s")
        expect(page.locator("#facts")).to_contain_text("1 down" if name == "down" else "all up")
        seen[name] = picture(page)
    assert len(set(seen.values())) == 4
    page.locator("summary").click()
    row = page.locator("tr[data-row='leaf1>spine1']")
    expect(row).to_contain_text("unknown")


def test_a_dead_switch_is_told_by_more_than_colour(watched: Watched, server: Running) -> None:
    switches = tuple(
        SwitchView(s.name, s.address, "down" if s.name == "spine4" else "ready", s.entries)
        for s in view(0).switches
    )
    server.publish(replace(view(1, down=frozenset()), switches=switches))
    expect(watched.page.locator("#facts")).to_contain_text("5 of 6 ready")
    watched.page.locator("summary").click()
    expect(watched.page.locator("tr[data-row=spine4]")).to_contain_text("down")


def test_picking_tells_why_and_has_an_address(watched: Watched) -> None:
    page = watched.page
    details = page.locator("#details")
    # Tables of a large fabric have tens of thousands of rows: they are made while they are shown.
    expect(page.locator(".twin table")).to_have_count(0)
    plain = picture(page)
    page.get_by_role("button", name="vgg16", exact=True).first.click()
    expect(details).to_contain_text(JOBS[1].why)
    expect(details).to_contain_text("h2 → leaf1 → spine2 → leaf2 → h6")
    assert picture(page) != plain
    assert page.url.endswith("#/fabric?pick=job%3Avgg16")
    details.get_by_role("button", name="h2 → leaf1 → spine2 → leaf2 → h6").click()
    expect(details).to_contain_text(JOBS[1].flow_why)
    page.keyboard.press("Escape")
    expect(details).to_contain_text("Choose a job")
    page.get_by_role("searchbox", name="Find").first.fill("leaf1>spine2")
    page.keyboard.press("Enter")
    expect(details).to_contain_text("compatibility score 1.00")
    expect(details).to_contain_text("of 25 Mbit/s")
    # This fabric is real.
    expect(details.get_by_role("button", name="Cut leaf1-spine2")).to_have_count(0)
    page.go_back()
    expect(details).to_contain_text("Choose a job")


def test_the_page_shows_the_alarms_of_the_api_and_no_others(browser: object) -> None:
    status = FakeStatus(missing=(NotReady("agent", "h3", "its agent has no session"),))
    base = view(1)
    with running(base, status=status) as server:
        watched = Watched(browser.new_page(), f"{server.url}#/operations")
        alarms = watched.page.locator("#alarms")
        expect(watched.page.locator("#sessions")).to_contain_text("7 of 8 connected")
        expect(alarms).to_contain_text("No alarm.")
        found = (Alarm("silent_agents", "", 5, "h3 has none"), Alarm("link_down", "a-b", 7, "a-b is down"))
        server.publish(replace(view(2), alarms=found))
        expect(alarms.locator("tr[data-row]")).to_have_count(2)
        for alarm in found:
            row = alarms.locator(f"tr[data-row='{alarm.name}']")
            expect(row).to_contain_text(alarm.kind.replace("_", " "))
            expect(row).to_contain_text(alarm.text)
        answer = httpx.get(f"{server.url}api/v1/alarms".replace("//api", "/api"))
        assert {a["name"] for a in answer.json()["alarms"]} == {alarm.name for alarm in found}
        watched.page.close()


def test_rates_of_an_explanation_have_one_unit(browser: object) -> None:
    topology = leaf_spine(2, 4, 4, host_bps=10**9, fabric_bps=10**9)
    with running(replace(view(5), topology=topology)) as server:
        watched = Watched(browser.new_page(), f"{server.url}#/jobs?pick=job:vgg16")
        explanation = watched.page.locator("#explain")
        expect(explanation.locator(".sentences")).to_contain_text("carries 0.042 of 1 Gbit/s if all")
        expect(explanation.locator("table").last).to_contain_text("0.021 of 1 Gbit/s")
        expect(explanation).not_to_contain_text("Mbit/s")
        watched.page.close()


def test_circles_say_how_to_name_a_link(browser: object) -> None:
    with running(replace(view(1), plan=None)) as server:
        watched = Watched(browser.new_page(), f"{server.url}#/circles?link=x%3Ey")
        words = "This fabric has no link x>y. Name a link by its ends, like leaf1>spine2."
        expect(watched.page.locator("#circle")).to_contain_text(words)
        watched.page.close()


def test_packets_that_a_host_may_not_send_are_shown_by_port_and_reason(
    watched: Watched, server: Running
) -> None:
    page, details = watched.page, watched.page.locator("#details")
    page.goto(f"{server.url}#/fabric?pick=host%3Ah2")
    expect(details.locator("#strays")).to_have_text("cnp 3")
    page.goto(f"{server.url}#/fabric?pick=host%3Ah1")
    expect(details).to_contain_text("h1")
    expect(details.locator("#strays")).to_have_count(0)
    page.goto(f"{server.url}#/fabric?pick=switch%3Aleaf1")
    expect(details.locator("#strays")).to_have_text("h2: cnp 3")
    leaf = replace(
        view(0).switches[0], strays=(StrayCounter(2, "cnp", 3), StrayCounter(1, "unplanned", 1200))
    )
    server.publish(replace(view(1), switches=(leaf, *view(0).switches[1:])))
    expect(details.locator("#strays li")).to_have_text(["h2: cnp 3", "h1: unplanned 1\u2009200"])


def test_the_map_is_walked_by_keyboard_alone(watched: Watched) -> None:
    page = watched.page
    details = page.locator("#details")
    page.locator("canvas").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    expect(details.locator("h3")).to_contain_text("host")
    expect(details).to_contain_text("NIC")
    # From the skip link on, Tab reaches the tables, and Enter picks there.
    page.locator("summary").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="h3", exact=True).focus()
    page.keyboard.press("Enter")
    expect(details.locator("h3")).to_contain_text("h3")
    expect(details).to_contain_text("resnet50")


class Cuts:
    """The cuts of a fabric whose state a test publishes."""

    def __init__(self) -> None:
        self.present: list[str] = []

    def cuts(self) -> list[str]:
        return self.present

    async def cut(self, name: str) -> CutLinkOut:
        self.present.append(name)
        return CutLinkOut(name=name, cables=(name,))

    async def mend(self, name: str) -> None:
        self.present.remove(name)


def test_a_link_of_an_emulated_fabric_is_cut_after_a_question_and_mended(browser: object) -> None:
    cuts = Cuts()
    whole = replace(view(0, down=frozenset()), emulated=True)
    with running(whole, operations=Operations(cuts=cuts)) as server:
        context = browser.new_context()
        page = Watched(context.new_page(), f"{server.url}#/fabric?pick=link:leaf1%3Espine2").page
        details = page.locator("#details")
        details.get_by_role("button", name="Cut leaf1-spine2").click()
        details.get_by_role("button", name="Leave it").click()
        assert cuts.present == []
        # By keyboard: the question takes the focus.
        details.get_by_role("button", name="Cut leaf1-spine2").focus()
        page.keyboard.press("Enter")
        expect(details.get_by_role("button", name="Yes, cut it")).to_be_focused()
        page.keyboard.press("Enter")
        expect(details.locator(".done")).to_have_text("leaf1-spine2 is cut")
        assert cuts.present == ["leaf1-spine2"]
        cut = replace(view(1, down=frozenset({("leaf1", "spine2")})), emulated=True)
        assert cut.plan is not None
        flow = "vgg19/h1>h5"
        moved = replace(cut.plan.flows[flow], path=("h1", "leaf1", "spine3", "leaf2", "h5"))
        plan = replace(cut.plan, version=4, flows=cut.plan.flows | {flow: moved})
        server.publish(replace(cut, plan=plan))
        row = details.locator(f"tr[data-row='{flow}']")
        expect(row).to_contain_text("leaf1 → spine2 → leaf2leaf1 → spine3 → leaf2")
        details.get_by_role("button", name="Mend leaf1-spine2").click()
        expect(details.locator(".done")).to_have_text("leaf1-spine2 is mended")
        assert cuts.present == []
        server.publish(replace(view(2, down=frozenset()), emulated=True))
        expect(details.get_by_role("button", name="Cut leaf1-spine2")).to_be_visible()
        context.close()


# Notes where the map writes the names of rows: the last rectangle before the text is their ground.
NOTE_ROW_NAMES = """
window.rowNames = new Map();
let ground = null;
const { fillRect, fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillRect = function (...box) { ground = box; fillRect.apply(this, box); };
CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
  if (/^\\d+ (hosts|leaves|spines|cores)$/.test(text)) window.rowNames.set(text, ground);
  fillText.call(this, text, ...at);
};
"""


@pytest.mark.parametrize(
    ("shape", "width", "names"),
    [
        ((2, 2, 8), 390, {"16 hosts"}),
        ((16, 16, 8), 390, {"16 spines", "16 leaves", "128 hosts"}),
        ((40, 40, 32), 1280, {"40 spines", "40 leaves", "1280 hosts"}),
        ((8, 4, 8), 1280, {"64 hosts"}),
    ],
)
def test_names_of_rows_cover_no_node(
    browser: object, shape: tuple[int, int, int], width: int, names: set[str]
) -> None:
    topology = leaf_spine(*shape, host_bps=CAPACITY, fabric_bps=CAPACITY)
    known = view(1, down=frozenset())
    shown = replace(known, topology=topology, switches=(), links=(), jobs=(), plan=None, counters=())
    with running(shown) as server:
        context = browser.new_context(viewport={"width": width, "height": 900})
        context.add_init_script(NOTE_ROW_NAMES)
        page = Watched(context.new_page(), f"{server.url}#/fabric").page
        canvas = page.locator(".canvas canvas")
        picture(page)
        page.wait_for_function("window.rowNames.size > 0")
        found = page.evaluate("Object.fromEntries(window.rowNames)")
        assert found.keys() == names
        size = canvas.bounding_box()
        nodes = {s.name for s in topology.switches} | {h.name for h in topology.hosts}
        for text, (left, top, across, high) in found.items():
            assert 0 <= top <= size["height"] - high, text
            for part in (0.1, 0.5, 0.9):
                for down in (0.1, 0.5, 0.9):
                    canvas.hover(position={"x": left + part * across, "y": top + down * high}, force=True)
                    told = page.locator(".tooltip strong").all_inner_texts()
                    assert not nodes & set(told), f"{text} covers {told}"
        context.close()


class Past:
    """A past in which one link was down and another one full."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def history(self, kind: HistoryKind, *_: object) -> MeasuredPastOut:
        return MeasuredPastOut(kind=kind, step_ns=1, times_ns=(), series=(), next=None)

    async def log(self, *_: object) -> EventsOut:
        return EventsOut(time_ns=1, events=(), next=None)

    async def moment(self, time_ns: int) -> MomentOut:
        self.asked.append(time_ns)
        empty = [None] * (2 * (len(TOPOLOGY.links) + len(TOPOLOGY.hosts)))
        return MomentOut(
            time_ns=time_ns // 10**9 * 10**9,
            step_ns=10**9,
            links=LinkColumnsOut(load=(97.6, *empty[1:]), marks=tuple(empty)),
            jobs={"vgg19": PastJobOut(mean_ms=412.5)},
            present=("vgg19",),
            plan=PastPlanInForceOut(version=2, policy="crux", made_ns=None, reason="vgg19 has arrived"),
            down=("leaf1-spine3", "spine4"),
            alarms=None,
        )


def test_the_timeline_goes_back_to_a_time_of_the_past(browser: object) -> None:
    past = Past()
    with running(view(100), operations=Operations(history=past)) as server:
        context = browser.new_context()
        watched = Watched(context.new_page(), f"{server.url}#/timeline?at=5400000000")
        moment = watched.page.locator("#moment")
        expect(moment.locator("h2")).to_have_text("The fabric at 5.0 s")
        facts = moment.locator(".pairs")
        for words in ("version 2 of crux", "vgg19 has arrived", "leaf1-spine3, spine4", "not known"):
            expect(facts).to_contain_text(words)
        expect(moment.locator("tr[data-row=vgg19] td").first).to_have_text("412.5")
        label = re.compile(r"Highest Load: \w+ to \w+, 98 %. Down: leaf1-spine3\.")
        expect(moment.locator("canvas")).to_have_attribute("aria-label", label)
        assert past.asked == [5_400_000_000]
        watched.page.get_by_role("slider", name="Time").focus()
        watched.page.keyboard.press("ArrowLeft")
        expect(moment.locator("h2")).to_have_text("The fabric at 4.0 s")
        watched.page.locator("#timeline").get_by_role("button", name="Now").click()
        expect(moment).to_have_count(0)
        context.close()
        assert watched.errors == []


def test_a_timeline_without_data_says_so_and_what_makes_it_appear(browser: object) -> None:
    known = view(3)
    with running(replace(known, jobs=(), plan=None), operations=Operations(history=Past())) as server:
        watched = Watched(browser.new_page(), f"{server.url}#/timeline")
        timeline, log = watched.page.locator("#timeline"), watched.page.locator("#log")
        expect(timeline).to_contain_text("No iteration times yet. They appear here once")
        expect(timeline).to_contain_text("no job is running: declare one in Operations")
        expect(timeline).to_contain_text("No job is running. Each job has a line here from its arrival on.")
        expect(log).to_contain_text("Nothing happened in this time. New plans,")
        expect(timeline.locator(".chart")).to_have_count(0)
        server.publish(known)
        expect(timeline.locator(".lanes svg")).to_have_count(len(known.jobs))
        expect(timeline).to_contain_text("reported iterations for some seconds.")
        watched.page.close()
        assert watched.errors == []


def test_a_job_without_slots_has_its_lane_too(browser: object) -> None:
    shown = view(100)
    first, *others = shown.jobs
    free = replace(first, shift_ms=None, period_ms=None, last_end_ns=shown.time_ns - 100_000_000)
    with running(replace(shown, jobs=(free, *others))) as server:
        context = browser.new_context()
        watched = Watched(context.new_page(), f"{server.url}#/timeline")
        lanes = watched.page.locator(".lanes svg")
        expect(lanes).to_have_count(len(shown.jobs))
        lane = watched.page.locator(".lanes svg.estimated")
        words = re.compile(rf"{first.name} communicates [1-9]\d* times, .* by its profile")
        expect(lane).to_have_attribute("aria-label", words)
        context.close()


class SlowPast(Past):
    """A past whose answers take longer than a second of the fabric."""

    async def log(self, *_: object) -> EventsOut:
        await asyncio.sleep(1)
        return EventsOut(
            time_ns=1,
            events=(EventOut(id=1, time_ns=1, kind="plan", subject="3", text="16 paths"),),
            next=None,
        )


def test_of_many_jobs_the_timeline_draws_the_first_and_the_picked_one_and_says_so(browser: object) -> None:
    known = view(3)
    jobs = tuple(replace(known.jobs[0], name=f"job-{number:02}") for number in range(40))
    plan = replace(known.plan, jobs={j.name: replace(known.plan.jobs["vgg19"], job=j.name) for j in jobs})
    with running(replace(known, jobs=jobs, plan=plan)) as server:
        page = Watched(browser.new_page(), f"{server.url}#/timeline?pick=job%3Ajob-39").page
        expect(page.locator(".lane-name")).to_have_count(24)
        expect(page.locator(".lane-name").last).to_contain_text("job-39")
        expect(page.locator("#timeline")).to_contain_text("Of 40 jobs, 24 are shown")
        page.close()


def test_an_answer_is_shown_although_time_goes_on_meanwhile(browser: object) -> None:
    with running(view(100), operations=Operations(history=SlowPast())) as server:
        context = browser.new_context()
        watched = Watched(context.new_page(), f"{server.url}#/timeline")
        row = watched.page.locator("#log tr[data-row='1']")
        for step in range(110, 6110, 10):
            # A second of the fabric, which is a new question for the page.
            server.publish(view(step))
            watched.page.wait_for_timeout(100)
            if row.count():
                break
        else:
            raise AssertionError("the page has dropped every answer")
        expect(row).to_contain_text("16 paths")
        context.close()
        assert watched.errors == []


class LongPast(Past):
    """A past of more events than a page of the list has."""

    async def log(self, *asked: object) -> EventsOut:
        *_, start, most = asked
        assert isinstance(start, PageStart)
        before = start.number() or 451
        events = tuple(
            EventOut(id=n, time_ns=n, kind="plan", subject=str(n), text=f"plan {n}")
            for n in range(before - 1, max(0, before - 1 - most), -1)
        )
        last = events[-1].id
        return EventsOut(time_ns=1, events=events, next=start.cursor_after(str(last)) if last > 1 else None)


def test_a_long_list_goes_on_for_who_asks_for_more(browser: object) -> None:
    with running(view(100), operations=Operations(history=LongPast())) as server:
        context = browser.new_context()
        watched = Watched(context.new_page(), f"{server.url}#/timeline")
        log = watched.page.locator("#log")
        for count in ("200 or more", "400 or more", "450"):
            expect(log.locator(".table-tools span")).to_have_text(f"1–15 of {count}")
            if count != "450":
                log.get_by_role("button", name="More of Events").click()
        expect(log.get_by_role("button", name="More of Events")).to_have_count(0)
        log.get_by_role("searchbox").fill("plan 7")
        expect(log.locator("tr[data-row='7']")).to_be_visible()
        context.close()
        assert watched.errors == []


def test_jobs_below_their_floor_and_left_out_ones_are_marked(watched: Watched, server: Running) -> None:
    page = watched.page
    marked = page.locator("#jobs small.warn")
    expect(page.locator("#jobs tr[data-row]")).to_have_count(3)
    expect(marked).to_have_count(0)
    first, second, third = view(1).jobs
    changed = (
        replace(first, breaches=1),
        replace(second, breaches=2, shares_level_with=("resnet50",)),
        replace(third, left_out="OverflowError: too large", level=None, dscp=None, shift_ms=None),
    )
    server.publish(replace(view(1), jobs=changed))
    words = ["below its floor once", "shares its level with resnet50", "left out of plans"]
    expect(marked).to_have_text(words)
    details = page.locator("#details")
    page.get_by_role("button", name="vgg16", exact=True).first.click()
    expect(details).to_contain_text("twice")
    page.get_by_role("button", name="resnet50", exact=True).first.click()
    reason = "left out of all plans, and its flows go by ECMP: OverflowError: too large"
    expect(details.locator("p.why").first).to_have_text(reason)
    server.publish(replace(view(2), jobs=(replace(first, silence="no worker has reported"), second, third)))
    expect(marked).to_have_text(["reports no iterations"])


def test_the_circle_turns_each_job_by_its_shift(watched: Watched) -> None:
    rings = watched.page.locator(".rings")
    expect(rings).to_contain_text("336 ms")
    expect(rings.locator(".ring").nth(0).locator(".up")).to_have_count(1)
    expect(rings.locator(".ring").nth(2).locator(".up")).to_have_count(2)
    top = rings.locator(".ring").nth(0).locator(".up").get_attribute("d")
    bottom = rings.locator(".ring").nth(1).locator(".up").get_attribute("d")
    assert top.startswith("M0 -")
    # A shift of half a turn starts at the bottom: x 0, y positive.
    assert bottom.startswith("M0 ")
    assert not bottom.startswith("M0 -")


def test_every_view_shows_when_it_was_measured_and_has_no_serious_finding_of_axe(
    watched: Watched, server: Running
) -> None:
    page = watched.page
    for name in VIEWS:
        page.goto(f"{server.url}#/{name}")
        expect(page.locator("nav [aria-current]")).to_have_text(
            re.compile(name.partition("?")[0], re.IGNORECASE)
        )
        expect(page.locator("#facts")).to_be_visible()
        assert page.locator("main .card:not(:has(.measured))").count() == 0, name
        assert axe_findings_of_themes(page) == [], name


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(390, 800), (3840, 2160)])
def test_fits_a_telephone_and_a_wall(browser: object, server: Running, width: int, height: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": height})
    watched = Watched(context.new_page(), server.url)
    for name in VIEWS:
        watched.page.goto(f"{server.url}#/{name}")
        expect(watched.page.locator("#facts")).to_be_visible()
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= width, name
        # A narrow page has another order and other parts that scroll; a wide one those of the test above.
        assert width > 390 or axe_findings_of_themes(watched.page) == [], name
    context.close()
    assert watched.errors == []


def test_reconnects_when_the_controller_comes_back(browser: object) -> None:
    context = browser.new_context()
    with running(view(0)) as first:
        watched = Watched(context.new_page(), first.url)
        expect(watched.page.locator("#connection")).to_contain_text("live")
        port = urlsplit(first.url).port
    expect(watched.page.locator("#connection")).to_contain_text("reconnecting")
    with running(view(50), port=port) as second:
        assert urlsplit(second.url).port == port
        expect(watched.page.locator("#connection")).to_contain_text("live")
        expect(watched.page.locator("#facts")).to_contain_text(f"{view(50).time_ns / 1e9:.1f} s")
        context.close()


def test_a_page_that_is_refused_the_stream_says_why_and_goes_on_when_it_may(browser: object) -> None:
    with running(view(0)) as server, ExitStack() as readers:
        where = urlsplit(server.url)
        asks = f"GET /api/v1/stream HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode()
        for _ in range(MAX_WEB_REQUESTS - MAX_WEB_REQUESTS // 8):
            reader = readers.enter_context(socket.create_connection((where.hostname, where.port)))
            reader.sendall(asks)
            assert reader.recv(12).endswith(b"200")
        context = browser.new_context()
        watched = Watched(context.new_page(), server.url)
        expect(watched.page.get_by_role("alert")).to_contain_text("224 event streams are open")
        expect(watched.page.locator("#connection")).to_contain_text("connecting")
        readers.close()
        expect(watched.page.locator("#connection")).to_contain_text("live")
        expect(watched.page.get_by_role("alert")).to_have_count(0)
        expect(watched.page.locator("#facts")).to_be_visible()
        context.close()
        assert watched.errors == []


def test_a_controller_that_knows_little_yet_is_shown_as_such(browser: object) -> None:
    with running(None) as server:
        context = browser.new_context()
        watched = Watched(context.new_page(), server.url)
        page = watched.page
        expect(page.locator("#fabric")).to_contain_text("Waiting for the first data")
        bare = replace(view(0), plan=None, jobs=(), switches=(), links=(), verified_paths=0)
        server.publish(bare)
        expect(page.locator("#jobs")).to_contain_text("No job is running")
        expect(page.locator("#facts")).to_contain_text("0 of 6 ready")
        none = {"recent_ms": (), "mean_ms": None, "p99_ms": None, "level": None, "dscp": None}
        fresh = replace(view(0).jobs[0], **none, shift_ms=None, period_ms=None)
        server.publish(replace(bare, jobs=(fresh, replace(fresh, name="blind", profile=None))))
        expect(page.locator("tr[data-row=blind]")).to_contain_text("no slots")
        expect(page.locator("#time-shifts")).to_contain_text("There is no plan yet")
        context.close()
        assert watched.errors == []


def test_the_api_documentation_works_offline(browser: object, server: Running) -> None:
    context = browser.new_context()
    watched = Watched(context.new_page(), server.url + "api/v1/docs")
    document = context.request.get(server.url + "api/v1/openapi.json").json()
    operations = sum(len(path) for path in document["paths"].values())
    expect(watched.page.locator(".opblock")).to_have_count(operations)
    assert watched.errors == []
    assert watched.foreign == []
    context.close()


ROOT = Path(__file__).parents[2]
PAGE = ROOT / "dashboard" / "dist"


def test_the_page_is_small() -> None:
    import gzip

    sent = sum(
        len(gzip.compress(path.read_bytes(), 9))
        for path in PAGE.iterdir()
        if path.suffix in {".js", ".css", ".html", ".svg"}
    )
    assert sent < 120_000


# Text and its ground need 4.5 to 1, drawings 3 to 1 (WCAG 2.2, 1.4.3 and 1.4.11).
TEXT = [
    (ink, ground)
    for ink in ("ink", "muted", "accent", "warn", "bad", "good")
    for ground in ("card", "ground", "soft")
]
TEXT += [("card", f"job-{n}") for n in range(1, 9)]
DRAWN = [(f"load-{n}", "card") for n in range(6)] + [
    ("unknown", "card"),
    *((f"job-{n}", "soft") for n in range(1, 9)),
]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def themes() -> list[dict[str, str]]:
    text = (ROOT / "dashboard" / "src" / "style.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root[^{]*\{([^}]*--ground[^}]*)\}", text)
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in blocks]


def test_the_palette_meets_wcag_aa() -> None:
    light, dark, followed = themes()
    assert dark == followed
    for theme in (light, dark):
        low = [
            (*pair, round(contrast(theme[pair[0]], theme[pair[1]]), 2))
            for pairs, least in ((TEXT, 4.5), (DRAWN, 3.0))
            for pair in pairs
            if contrast(theme[pair[0]], theme[pair[1]]) < least
        ]
        assert low == []
