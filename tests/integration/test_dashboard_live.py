# SPDX-License-Identifier: Apache-2.0
"""The page against a live embedded fabric: register a job, turn a circle, drain, undo, choose a policy."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_rig import ARGS, CHROMIUM, Watched

from polyrhythm.run.live import Live

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
expect = sync_api.expect
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no browser: apt-get install chromium"),
]
SCENARIO = Path(__file__).parents[2] / "polyrhythm" / "scenarios" / "cluster.yaml"
# Plans and probes of a slow machine take their time.
PATIENCE_MS = 60_000


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The page of a live fabric, whose processes run beside the browser."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    started: list[str] = []
    box: list[asyncio.AbstractEventLoop] = []
    ready, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        box.append(asyncio.get_running_loop())
        live = Live(SCENARIO, "polyrhythm", 1, 0, "embedded")
        try:
            started.append(await live.start(tmp_path / "run"))
            ready.set()
            await over.wait()
        finally:
            ready.set()
            await live.stop()

    (tmp_path / "run").mkdir()
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(300)
    assert started, "the live fabric did not start"
    yield f"{started[0].rstrip('/')}/"
    box[0].call_soon_threadsafe(over.set)
    thread.join(60)


def test_an_operator_works_with_the_page(address: str) -> None:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), headless=True, args=ARGS)
        context = browser.new_context(viewport={"width": 1400, "height": 1000})
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        watched = Watched(context.new_page(), address)
        page = watched.page
        see_jobs_and_circles(page)
        turn_a_circle(page, address)
        declare_a_job(page, address)
        drain_and_undrain(page, address)
        change_the_policy_twice(page, address, context)
        look_back(page, address)
        # The browser notes the conflict that this test makes.
        assert [words for words in watched.errors if "412 (Precondition Failed)" not in words] == []
        assert watched.foreign == []
        browser.close()


def see_jobs_and_circles(page: object) -> None:
    expect(page.locator("#jobs tr[data-row]").first).to_be_visible()
    expect(page.locator("#time-shifts .ring").first).to_be_visible()
    expect(page.locator("canvas")).to_have_attribute("aria-label", re.compile("Highest Load"))


def declare_a_job(page: object, address: str) -> None:
    page.goto(f"{address}#/operations")
    form = page.locator("#declare")
    form.get_by_label("Name").fill("late")
    form.get_by_label("Hosts, as a ring").fill("h1 h99")
    for label, value in (("Period ms", "200"), ("Sends for ms", "50"), ("Rate of a flow", "0.01")):
        form.get_by_label(label).fill(value)
    form.get_by_role("button", name="Declare").click()
    expect(form.locator(".fault")).to_contain_text("no host h99")
    form.get_by_label("Hosts, as a ring").fill("h1 h9")
    form.get_by_role("button", name="Declare").click()
    expect(form.locator(".done")).to_contain_text("late is declared")
    page.goto(f"{address}#/fabric?pick=job:late")
    expect(page.locator("#details")).to_contain_text("h1 → leaf1 →")


def turn_a_circle(page: object, address: str) -> None:
    # Without a choice it is the first link that jobs share by turns.
    page.goto(f"{address}#/circles")
    ring = page.get_by_role("slider").first
    expect(ring).to_be_visible()
    before = ring.get_attribute("aria-valuenow")
    ring.focus()
    page.keyboard.press("Shift+ArrowRight")
    expect(ring).not_to_have_attribute("aria-valuenow", before)
    expect(page.locator("#circle .score")).to_have_text(re.compile(r"^-?\d"))
    expect(page.get_by_role("table", name="Predicted iterations")).to_be_visible()


def drain_and_undrain(page: object, address: str) -> None:
    page.goto(f"{address}#/operations?pick=switch:spine3")
    drains = page.locator("#drains")
    drains.get_by_role("button", name="Drain", exact=True).click()
    expect(drains.locator("tr[data-row=spine3]")).to_contain_text("drained")
    expect(page.locator("#facts")).to_contain_text("Drained")
    drains.get_by_role("button", name="Undrain spine3").click()
    expect(drains).to_contain_text("Nothing is drained")


def change_the_policy_twice(page: object, address: str, context: object) -> None:
    """Another operator changes the policy in between, so the first try is refused, and the second one counts."""
    policy = page.locator("#policy")
    policy.get_by_label("Policy").select_option("crux")
    done = context.request.put(
        f"{address}api/v1/policy", data={"name": "ecmp"}, headers={"Origin": address[:-1]}
    )
    assert done.ok, done.text()
    policy.get_by_role("button", name="Use this policy").click()
    expect(policy.locator(".conflict")).to_contain_text("Somebody has changed it meanwhile")
    expect(policy).to_contain_text("ecmp")
    policy.get_by_role("button", name="Use this policy").click()
    expect(policy.locator(".done")).to_contain_text("crux makes the plans now")
    expect(page.locator("#facts")).to_contain_text("crux")


def look_back(page: object, address: str) -> None:
    page.goto(f"{address}#/timeline")
    expect(page.locator("#log tr[data-row]").first).to_be_visible()
    page.get_by_role("slider", name="Time").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#moment canvas")).to_be_visible()
    page.locator("#timeline").get_by_role("button", name="Now").click()
    expect(page.locator("#moment")).to_have_count(0)
