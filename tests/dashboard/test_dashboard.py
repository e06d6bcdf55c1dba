# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser that reaches our server and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fake_source import CAPACITY, JOBS, Running, running, view

from controller.model.view import LinkLoad, SwitchView

CHROMIUM = Path("/usr/bin/chromium")
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="no browser: install Debian's chromium (apt-get install chromium)"
)
sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
expect = sync_api.expect


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


class Watched:
    """A page, with what went wrong on it."""

    def __init__(self, page: object, server: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

        def only_ours(route: object) -> None:
            if urlsplit(route.request.url).netloc == urlsplit(server).netloc:
                route.continue_()
            else:
                self.foreign.append(route.request.url)
                route.abort()

        page.route("**/*", only_ours)
        page.goto(server)


@pytest.fixture
def watched(browser: object, server: Running) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    result = Watched(context.new_page(), server.url)
    yield result
    context.close()
    assert result.foreign == []


def test_shows_jobs_and_links_and_follows_the_view_in_place(watched: Watched, server: Running) -> None:
    page = watched.page
    expect(page.locator("#connection")).to_contain_text("live")
    expect(page.locator("tr[data-job]")).to_have_count(len(JOBS))
    expect(page.locator("[data-link]")).to_have_count(2 * (8 + 8))
    expect(page.locator("tr[data-job=vgg16]")).to_contain_text("h2, h6")
    mean = page.locator("tr[data-job=vgg19] td").nth(2)
    expect(mean).to_have_text(f"{view(0).jobs[0].mean_ms:.1f}")
    page.evaluate("for (const e of document.querySelectorAll('tr[data-job], .wire')) e.kept = true")
    server.publish(view(41))
    expect(mean).to_have_text(f"{view(41).jobs[0].mean_ms:.1f}")
    kept = "Array.from(document.querySelectorAll('tr[data-job], .wire')).every((e) => e.kept)"
    assert page.evaluate(kept)
    expect(page.locator("#facts")).to_contain_text("6 of 6")
    expect(page.locator("#facts")).to_contain_text("LeastCongested · Crux · Circles")
    assert watched.errors == []


def test_load_is_seen_as_colour_thickness_and_figure(watched: Watched, server: Running) -> None:
    page = watched.page
    loaded = page.locator("[data-link='leaf1>spine1']")
    expect(loaded).to_have_class("wire load-0")
    thin = loaded.locator(".arrow").get_attribute("d")
    busy = LinkLoad("leaf1", "spine1", CAPACITY, 1.0, 77, True)
    server.publish(replace(view(1), links=(busy,)))
    expect(loaded).to_have_class("wire load-5")
    assert loaded.locator(".arrow").get_attribute("d") != thin
    loaded.locator(".halo").hover(force=True)
    tooltip = page.locator("#tooltip")
    expect(tooltip).to_contain_text("leaf1 → spine1")
    expect(tooltip).to_contain_text("25.0 Mbit/s of 25.0 Mbit/s")
    expect(tooltip).to_contain_text("100 %")
    expect(tooltip).to_contain_text("ECN marks 77")
    assert watched.errors == []


def test_a_dead_link_and_a_dead_switch_are_marked_by_more_than_colour(
    watched: Watched, server: Running
) -> None:
    page = watched.page
    dead = page.locator("[data-link='leaf1>spine4']")
    expect(dead).to_have_class("wire load-0 down")
    expect(dead.locator("text")).to_have_text("✕")
    expect(page.locator("#facts")).to_contain_text("1 down")
    switches = tuple(
        SwitchView(s.name, s.address, "down" if s.name == "spine4" else "ready", s.entries)
        for s in view(0).switches
    )
    server.publish(replace(view(1, down=frozenset()), switches=switches))
    expect(dead).to_have_class("wire load-0")
    expect(page.locator("#facts")).to_contain_text("all up")
    expect(page.locator("#facts")).to_contain_text("5 of 6 ready")
    expect(page.locator(".node", has_text="spine4")).to_contain_text("✕")
    assert watched.errors == []


def test_choosing_tells_why(watched: Watched) -> None:
    page = watched.page
    details = page.locator("#details")
    page.locator("tr[data-job=vgg16] button").click()
    expect(details).to_contain_text(JOBS[1].why)
    expect(details).to_contain_text("h2 → leaf1 → spine2 → leaf2 → h6")
    expect(page.locator(".wire.route")).to_have_count(8)
    details.get_by_role("button", name="h2 → leaf1 → spine2 → leaf2 → h6").click()
    expect(details).to_contain_text(JOBS[1].flow_why)
    expect(page.locator(".wire.route")).to_have_count(4)
    page.keyboard.press("Escape")
    expect(details).to_contain_text("Choose a job")
    expect(page.locator(".wire.route")).to_have_count(0)
    page.locator("[data-link='leaf1>spine2'] .halo").click(force=True)
    expect(details).to_contain_text("Shared by vgg16, vgg19; compatibility score 1.00")
    page.locator(".node", has_text="leaf2").click()
    expect(details).to_contain_text("127.0.0.1:9561")
    page.locator("summary").click()
    page.get_by_role("button", name="h3 → leaf1").click()
    expect(details.locator("h3")).to_have_text("h3 → leaf1")
    assert watched.errors == []


def test_jobs_below_their_floor_and_left_out_ones_are_marked(watched: Watched, server: Running) -> None:
    page = watched.page
    expect(page.locator(".jobs small.warn")).to_have_count(0)
    first, second, third = view(1).jobs
    changed = (
        replace(first, breaches=1),
        replace(second, breaches=2, shares_level_with=("resnet50",)),
        replace(third, left_out="OverflowError: too large", level=None, dscp=None, shift_ms=None),
    )
    server.publish(replace(view(1), jobs=changed))
    marked = page.locator(".jobs small.warn")
    expect(marked).to_have_text(
        ["below its floor once", "shares its level with resnet50", "left out of plans"]
    )
    details = page.locator("#details")
    page.get_by_role("button", name="vgg16", exact=True).first.click()
    expect(details).to_contain_text("below its floor")
    expect(details).to_contain_text("twice")
    expect(details).to_contain_text("shares its level with")
    page.get_by_role("button", name="resnet50", exact=True).first.click()
    words = "left out of all plans, and its flows go by ECMP: OverflowError: too large"
    expect(details.locator("p.why").first).to_have_text(words)
    server.publish(replace(view(2), jobs=(replace(first, silence="no worker has reported"), second, third)))
    expect(marked).to_have_text(["reports no iterations"])
    assert watched.errors == []


def test_the_circle_turns_each_job_by_its_shift(watched: Watched) -> None:
    page = watched.page
    rings = page.locator(".rings")
    expect(rings).to_contain_text("336 ms")
    expect(rings.locator(".ring").nth(0).locator(".up")).to_have_count(1)
    expect(rings.locator(".ring").nth(2).locator(".up")).to_have_count(2)
    top = rings.locator(".ring").nth(0).locator(".up").get_attribute("d")
    bottom = rings.locator(".ring").nth(1).locator(".up").get_attribute("d")
    assert top.startswith("M0 -")
    # A shift of half a turn starts at the bottom: x 0, y positive.
    assert bottom.startswith("M0 ")
    assert not bottom.startswith("M0 -")
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
        expect(watched.page.locator("#connection")).to_contain_text("live", timeout=20_000)
        expect(watched.page.locator("#facts")).to_contain_text(f"{view(50).time_ns / 1e9:.1f} s")
        context.close()


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
        fresh = replace(
            view(0).jobs[0],
            recent_ms=(),
            mean_ms=None,
            p99_ms=None,
            level=None,
            dscp=None,
            shift_ms=None,
            period_ms=None,
        )
        server.publish(replace(bare, jobs=(fresh, replace(fresh, name="blind", profile=None))))
        expect(page.locator("tr[data-job=blind]")).to_contain_text("no slots")
        expect(page.locator("#time-shifts")).to_contain_text("no time-shifts")
        context.close()
        assert watched.errors == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (800, "light")])
def test_fits_the_window_in_either_scheme(browser: object, server: Running, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    watched = Watched(context.new_page(), server.url)
    expect(watched.page.locator("tr[data-job]")).to_have_count(3)
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    table = "(e => e.scrollWidth <= e.clientWidth)(document.querySelector('#jobs .scroll'))"
    assert watched.page.evaluate(table)
    ink, ground = watched.page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        ".map((c) => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0))"
    )
    assert (ink > ground) == (scheme == "dark")
    context.close()


def test_the_api_documentation_works_offline(browser: object, server: Running) -> None:
    context = browser.new_context()
    watched = Watched(context.new_page(), server.url + "api/v1/docs")
    document = context.request.get(server.url + "api/v1/openapi.json").json()
    operations = sum(len(path) for path in document["paths"].values())
    expect(watched.page.locator(".opblock")).to_have_count(operations)
    assert watched.errors == []
    assert watched.foreign == []
    context.close()


@pytest.mark.parametrize(
    ("periods", "turn"),
    [([336, 336, 168], 336), ([240, 160], 480), ([168.1, 336.2], 336.2), ([300.3, 299.9], None), ([], None)],
)
def test_the_common_circle_closes_for_all_periods(
    watched: Watched, periods: list[float], turn: float | None
) -> None:
    got = watched.page.evaluate("(p) => import('/circle.js').then((m) => m.commonPeriod(p))", periods)
    assert got == turn
