# SPDX-License-Identifier: Apache-2.0
"""Every view of the page against a live embedded fabric, as an operator uses them: by mouse and by keyboard.

Register a job, see its path, turn a circle, cut a link and watch the flows move, drain, undo, choose a policy,
read the log. Pictures of the views are kept in `out/page`.
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_rig import ARGS, CHROMIUM, Watched, axe_findings

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
PICTURES = Path(__file__).parents[2] / "out" / "page"


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
        keep(page, "fabric")
        turn_a_circle(page, address)
        drag_a_circle(page)
        path = declare_a_job(page, address)
        cut_and_mend(page, address, path)
        see_a_job(page, address)
        keep(page, "jobs")
        drain_and_undrain(page, address)
        change_the_policy_twice(page, address, context)
        keep(page, "operations")
        look_at_the_log(page, address)
        # The browser notes the conflict that this test makes, and the plan may change while a circle turns.
        unknown = [words for words in watched.errors if not re.search(r"412 \(Precond|409 \(Conflict", words)]
        assert unknown == []
        assert watched.foreign == []
        browser.close()


def see_jobs_and_circles(page: object) -> None:
    expect(page.locator("#jobs tr[data-row]").first).to_be_visible()
    expect(page.locator("#time-shifts .ring").first).to_be_visible()
    expect(page.locator("canvas")).to_have_attribute("aria-label", re.compile("Highest Load"))


def keep(page: object, name: str) -> None:
    """Keep a picture of a view, which must have no serious finding of axe-core."""
    assert axe_findings(page) == [], name
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(PICTURES / f"{name}.png"))


def declare_a_job(page: object, address: str) -> list[str]:
    """Declare one; returns the path of its first flow."""
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
    flow = page.locator("#details .flows button").first
    expect(flow).to_contain_text("h1 → leaf1 →")
    return flow.inner_text().split(" → ")


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


def drag_a_circle(page: object) -> None:
    """By mouse, a quarter of a turn. A link whose address holds the shifts shows them to everybody."""
    page.locator("#circle").get_by_role("button", name="Back to the plan's shifts").click()
    ring = page.get_by_role("slider").first
    turn = float(
        re.search(r"on a circle of ([\d.]+) ms", page.locator("#circle svg").get_attribute("aria-label"))[1]
    )
    box = page.locator("#circle svg").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    # The outermost ring is the first job's: the drawing is 330 units wide.
    radius = 110 / 330 * box["width"]
    for part in (0.0, 0.08, 0.16, 0.25):
        x = middle[0] + radius * math.sin(2 * math.pi * part)
        y = middle[1] - radius * math.cos(2 * math.pi * part)
        page.mouse.move(x, y)
        if part == 0.0:
            page.mouse.down()
            # A new plan may have moved the ring until now.
            before = float(ring.get_attribute("aria-valuenow"))
    page.mouse.up()
    page.wait_for_function(TURNED, arg=[before, turn / 4, turn])
    expect(page.locator("#circle .score")).to_have_text(re.compile(r"^-?\d"))
    table = page.get_by_role("table", name="Predicted iterations")
    expect(table.locator("tbody tr").first).to_contain_text("×")
    expect(page).to_have_url(re.compile("shifts="))
    shown = ring.get_attribute("aria-valuenow")
    keep(page, "circles")
    page.reload()
    expect(page.get_by_role("slider").first).to_have_attribute("aria-valuenow", shown)
    page.locator("#circle").get_by_role("button", name="Back to the plan's shifts").click()
    expect(page.get_by_role("slider").first).not_to_have_attribute("aria-valuenow", shown)


def cut_and_mend(page: object, address: str, path: list[str]) -> None:
    """Click the link on the map that a job uses, cut it, see where the job's flow goes, and mend it."""
    page.goto(f"{address}#/fabric")
    leaf, spine = path[1], path[2]
    click_link(page, f"{leaf} → {spine}")
    details = page.locator("#details")
    expect(details.locator("h3")).to_have_text(f"{leaf} → {spine}")
    details.get_by_role("button", name=f"Cut {leaf}-{spine}").click()
    # The question has the focus: Tab leads to the other answer.
    expect(details.get_by_role("button", name="Yes, cut it")).to_be_focused()
    details.get_by_role("button", name="Leave it").click()
    expect(page.locator("#facts")).to_contain_text("all up")
    details.get_by_role("button", name=f"Cut {leaf}-{spine}").click()
    expect(details.get_by_role("button", name="Yes, cut it")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#facts")).to_contain_text("1 down")
    row = details.locator("tr[data-row='late/h1>h9']")
    expect(row).to_contain_text(f"{leaf} → {spine} → {path[3]}")
    expect(row.locator("td").last).to_have_text(re.compile(rf"{leaf} → (?!{spine})\w+ → {path[3]}"))
    keep(page, "cut")
    page.wait_for_function(LATER, arg=[page.evaluate(FABRIC_TIME), 3.0])
    details.get_by_role("button", name=f"Mend {leaf}-{spine}").click()
    expect(page.locator("#facts")).to_contain_text("all up")


# Whether the first ring is turned by so much (ms), within a twentieth of the circle.
TURNED = """([before, by, circle]) => {
  const ring = document.querySelector("#circle [role=slider]");
  const [now, period] = ["aria-valuenow", "aria-valuemax"].map((name) => Number(ring.getAttribute(name)));
  const off = (((now - before - by) % period) + 1.5 * period) % period - period / 2;
  return Math.abs(off) < circle / 20;
}"""
FABRIC_TIME = "() => parseFloat(document.querySelector('#facts dd').textContent)"
LATER = f"""([since, by]) => {{ const now = ({FABRIC_TIME})(); return now >= since + by || now < since; }}"""


def click_link(page: object, name: str) -> None:
    """Click the link with this tooltip, which is somewhere below the upper tier."""
    box = page.locator("#fabric canvas").bounding_box()
    tip = page.locator(".tooltip strong")
    for part in (0.2, 0.3, 0.4):
        for x in range(8, int(box["width"]), 8):
            page.mouse.move(box["x"] + x, box["y"] + part * box["height"])
            if tip.count() and tip.inner_text() == name:
                page.mouse.down()
                page.mouse.up()
                return
    raise AssertionError(f"no link {name} is under the pointer anywhere")


def see_a_job(page: object, address: str) -> None:
    page.goto(f"{address}#/jobs?pick=job:vgg19-a")
    expect(page.locator("#iterations .u-wrap")).to_be_visible()
    expect(page.locator("#explain .sentences li").first).to_be_visible()
    expect(page.locator("#blame table, #blame p.muted").first).to_be_visible()


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
    # The policy in use, not the one in the list of choices: its tag has come too.
    expect(policy.locator("dd").first).to_contain_text("ecmp")
    policy.get_by_role("button", name="Use this policy").click()
    expect(policy.locator(".done")).to_contain_text("crux makes the plans now")
    expect(page.locator("#facts")).to_contain_text("crux")


def look_at_the_log(page: object, address: str) -> None:
    page.goto(f"{address}#/timeline")
    expect(page.locator("#log tr[data-row]").first).to_be_visible()
