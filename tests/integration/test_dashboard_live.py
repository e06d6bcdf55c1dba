# SPDX-License-Identifier: Apache-2.0
"""Every view of the page against a live embedded fabric, as an operator uses them: by mouse and by keyboard.

Register a job, see its path, turn a circle, cut a link and watch the flows move, drain, undo, choose a policy
and roll it back, read the log, go back to the time of the cut, simulate other policies, and walk through all
views without a mouse. Pictures of the views are kept in `out/page`, or in the folder that POLYRHYTHM_PICTURES names.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
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
PATIENCE_MS = 120_000
# A new plan may come between a look and a click: what it foils is done once more, at most so often.
TRIES = 5
PICTURES = Path(os.environ.get("POLYRHYTHM_PICTURES") or Path(__file__).parents[2] / "out" / "page")


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
        declare_a_job(page, address)
        cable, second = cut_and_mend(page, address)
        see_a_job(page, address)
        keep(page, "jobs")
        drain_and_undrain(page, address)
        change_the_policy_twice(page, address, context)
        roll_back(page)
        keep(page, "operations")
        look_at_the_log(page, address)
        go_back_to_the_cut(page, cable, second)
        simulate_other_policies(page, address)
        walk_by_keyboard(page, address)
        # The browser notes the conflict that this test makes, and the plan may change while a circle turns.
        unknown = [words for words in watched.errors if not re.search(r"412 \(Precond|409 \(Conflict", words)]
        assert unknown == []
        assert watched.foreign == []
        page.unroute_all(behavior="ignoreErrors")
        browser.close()


def test_an_open_page_goes_on_after_its_controller_was_killed(
    fabric: object, start_controller: object, tmp_path: Path
) -> None:
    """kill -9, and a new process on the same port: the page shows the job of before and one that comes then."""
    described, state = fabric.description(profile="declared"), f"--state={tmp_path / 'state'}"
    first = start_controller(described, state)
    asked = {
        "gpus": 2,
        "hosts": ["h1", "h3"],
        "flows": [{"src": "h1", "dst": "h3", "bytes_per_iteration": 10**6}],
    }

    def declare(web: str, name: str) -> None:
        answer = httpx.post(f"{web}/api/v1/jobs", json={"name": name, **asked}, timeout=PATIENCE_MS / 1e3)
        assert answer.status_code == 201, answer.text

    declare(first.web, "kept")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), headless=True, args=ARGS)
        page = browser.new_page()
        Watched(page, f"{first.web}/#/jobs?pick=job%3Akept")
        expect(page.locator("#connection")).to_contain_text("live", timeout=PATIENCE_MS)
        first.process.kill()
        first.process.wait()
        expect(page.locator("#connection")).to_contain_text("reconnecting", timeout=PATIENCE_MS)
        second = start_controller(described, state, f"--web-port={urlsplit(first.web).port}")
        assert second.web == first.web
        expect(page.locator("#connection")).to_contain_text("live", timeout=PATIENCE_MS)
        declare(second.web, "newer")
        for name in ("kept", "newer"):
            expect(page.locator("#jobs")).to_contain_text(name, timeout=PATIENCE_MS)
        assert page.url.endswith("#/jobs?pick=job%3Akept")
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


def path_of_the_job(page: object, address: str) -> list[str]:
    """The path of its first flow, as the page shows it now."""
    page.goto(f"{address}#/fabric?pick=job:late")
    flow = page.locator("#details .flows button").first
    expect(flow).to_contain_text("h1 → leaf1 →")
    return flow.inner_text().split(" → ")


def turn_a_circle(page: object, address: str) -> None:
    # Without a choice it is a link that jobs share by turns.
    page.goto(f"{address}#/circles")
    ring = page.get_by_role("slider").first
    expect(ring).to_be_visible()
    before = ring.get_attribute("aria-valuenow")
    ring.focus()
    page.keyboard.press("Shift+ArrowRight")
    expect(ring).not_to_have_attribute("aria-valuenow", before)
    expect(page).to_have_url(re.compile("link=.*shifts="))
    expect(page.locator("#circle .score")).to_have_text(re.compile(r"^-?\d"))
    expect(page.get_by_role("table", name="Predicted iterations")).to_be_visible()


def drag_a_circle(page: object) -> None:
    """By mouse, a quarter of a turn. A link whose address holds the shifts shows them to everybody."""
    # The address holds the shift since the ring was turned by keyboard: no new plan moves it.
    page.locator("#circle").scroll_into_view_if_needed()
    ring = page.get_by_role("slider").first
    for left in reversed(range(TRIES)):
        before = float(ring.get_attribute("aria-valuenow"))
        drawing = page.locator("#circle svg")
        turn = float(re.search(r"on a circle of ([\d.]+) ms", drawing.get_attribute("aria-label"))[1])
        box = drawing.bounding_box()
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        # The outermost ring is the first job's: the drawing is 330 units wide.
        radius = 110 / 330 * box["width"]
        for part in (0.0, 0.08, 0.16, 0.25):
            x = middle[0] + radius * math.sin(2 * math.pi * part)
            y = middle[1] - radius * math.cos(2 * math.pi * part)
            page.mouse.move(x, y)
            if part == 0.0:
                page.mouse.down()
        page.mouse.up()
        if page.evaluate(TURNED, [before, turn / 4, turn]):
            break
        # The figures of the page had moved under the pointer.
        assert left, "the ring does not follow the pointer"
    expect(page.locator("#circle .score")).to_have_text(re.compile(r"^-?\d"))
    table = page.get_by_role("table", name="Predicted iterations")
    expect(table.locator("tbody tr").first).to_contain_text("×")
    shown = ring.get_attribute("aria-valuenow")
    keep(page, "circles")
    page.reload()
    expect(page.get_by_role("slider").first).to_have_attribute("aria-valuenow", shown)
    page.locator("#circle").get_by_role("button", name="Back to the plan's shifts").click()
    expect(page.get_by_role("slider").first).not_to_have_attribute("aria-valuenow", shown)
    expect(page).not_to_have_url(re.compile("shifts="))


def cut_and_mend(page: object, address: str) -> tuple[str, int]:
    """Click the link on the map that a job uses, cut it, see where the job's flow goes, and mend it.

    Returns the cable, and a second of fabric time at which it was down.
    """
    for left in reversed(range(TRIES)):
        _, leaf, spine, other, _ = path_of_the_job(page, address)
        page.goto(f"{address}#/fabric")
        click_link(page, f"{leaf} → {spine}")
        cable, details, facts = f"{leaf}-{spine}", page.locator("#details"), page.locator("#facts")
        cut, sure = (
            details.get_by_role("button", name=f"Cut {cable}"),
            details.get_by_role("button", name="Yes, cut it"),
        )
        cut.click()
        # The question has the focus: Tab leads to the other answer.
        expect(sure).to_be_focused()
        details.get_by_role("button", name="Leave it").click()
        expect(facts).to_contain_text("all up")
        cut.click()
        expect(sure).to_be_focused()
        page.keyboard.press("Enter")
        expect(facts).to_contain_text("1 down")
        row = details.locator("tr[data-row='late/h1>h9']")
        crossed = details.get_by_role("table", name="Its flows before the cut")
        expect(crossed.or_(details.get_by_text("No planned flow crossed it"))).to_be_visible()
        if row.count():
            break
        assert left, "the job was never on the link of its path"
        details.get_by_role("button", name=f"Mend {cable}").click()
        expect(facts).to_contain_text("all up")
    expect(row).to_contain_text(f"{leaf} → {spine} → {other}")
    expect(row.locator("td").last).to_have_text(re.compile(rf"{leaf} → (?!{spine} )\w+ → {other}"))
    keep(page, "cut")
    # The past is kept by the second: this one was down from its beginning to its end.
    second = math.floor(page.evaluate(FABRIC_TIME)) + 1
    page.wait_for_function(f"(end) => ({FABRIC_TIME})() > end", arg=second + 2)
    details.get_by_role("button", name=f"Mend {cable}").click()
    expect(facts).to_contain_text("all up")
    return cable, second


# Whether the first ring is turned by so much (ms), within a twentieth of the circle. A new plan draws the rings anew.
TURNED = """([before, by, circle]) => {
  const ring = document.querySelector("#circle [role=slider]");
  if (!ring) return false;
  const [now, period] = ["aria-valuenow", "aria-valuemax"].map((name) => Number(ring.getAttribute(name)));
  const off = (((now - before - by) % period) + 1.5 * period) % period - period / 2;
  return Math.abs(off) < circle / 20;
}"""
# In seconds: "12.3 s", "1 min 2 s".
FABRIC_TIME = r"""() => {
  const text = document.querySelector('#facts dd').textContent;
  const part = (unit) => Number((new RegExp(`([\\d.]+) ${unit}\\b`).exec(text) ?? [0, 0])[1]);
  return 3600 * part("h") + 60 * part("min") + part("s");
}"""


def click_link(page: object, name: str) -> None:
    """Click the link with this tooltip, which is somewhere below the upper tier."""
    canvas, tip = page.locator("#fabric canvas"), page.locator(".tooltip strong")
    for _ in range(TRIES):
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        for part, x in ((part, x) for part in (0.2, 0.3, 0.4) for x in range(8, int(box["width"]), 8)):
            page.mouse.move(box["x"] + x, box["y"] + part * box["height"])
            if tip.all_inner_texts() == [name]:
                page.mouse.down()
                page.mouse.up()
                heading = page.locator("#details h3")
                expect(heading).to_be_visible()
                if heading.inner_text() == name:
                    return
                # The map had moved: another link was there.
                page.locator("#details").get_by_role("button", name="Close").click()
                break
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


def roll_back(page: object) -> None:
    """Undo the change: an earlier plan comes back under a new number."""
    plans = page.locator("#plans")
    back = plans.get_by_role("button", name="Roll back to").first
    version = re.sub(r"\D", "", back.inner_text())
    plans.get_by_role("button", name=f"Compare {version}", exact=True).click()
    expect(plans.locator("p[role=status]")).to_contain_text(f"Plan {version} differs from the one in force")
    plans.get_by_role("button", name=f"Roll back to {version}", exact=True).click()
    expect(plans.locator(".done")).to_contain_text(f"plan {version} is in force again")
    expect(page.locator("#audit")).to_contain_text(f"POST /api/v1/plans/{version}/rollback")


def look_at_the_log(page: object, address: str) -> None:
    page.goto(f"{address}#/timeline")
    expect(page.locator("#log tr[data-row]").first).to_be_visible()


def go_back_to_the_cut(page: object, cable: str, second: int) -> None:
    """Move the time of the timeline back to when the link was down; its address shows that time to everybody."""
    page.get_by_role("slider", name="Time").fill(str(second))
    moment = page.locator("#moment")
    for _ in range(2):
        expect(moment.locator("h2")).to_contain_text("The fabric at")
        expect(moment.locator(".pairs")).to_contain_text(cable)
        expect(moment.locator("canvas")).to_have_attribute("aria-label", re.compile(f"Down: {cable}"))
        expect(moment.locator("tr[data-row=vgg19-a] td").first).to_have_text(re.compile(r"^\d"))
        expect(page).to_have_url(re.compile(f"at={second}000000000"))
        page.reload()
    keep(page, "timeline")
    page.locator("#timeline").get_by_role("button", name="Now").click()
    expect(moment).to_have_count(0)


def simulate_other_policies(page: object, address: str) -> None:
    """Three policies as bars, each with its worst-off job."""
    policies = ["ecmp", "crux", "polyrhythm"]
    page.goto(f"{address}#/what-if")
    boxes = page.get_by_role("group", name="Policies").get_by_role("checkbox")
    expect(boxes.first).to_be_visible()
    for name in (label.strip() for label in page.locator("#what-if label").all_inner_texts()):
        page.get_by_label(name, exact=True).set_checked(name in policies)
    page.get_by_role("button", name="Simulate").click()
    rows = page.locator("#what-if tbody tr")
    expect(rows).to_have_count(len(policies))
    for row in rows.all():
        shown = {
            name: float(times[1])
            for name, cell in zip(
                page.locator("#what-if thead button").all_inner_texts(),
                row.locator("td").all_inner_texts()[2:],
                strict=True,
            )
            if (times := re.search(r"([\d.]+)×", cell))
        }
        assert len(shown) >= 6
        assert row.locator("td:nth-child(n + 4) .bar").count() == len(shown)
        worst, by = row.locator("td").first.inner_text().rstrip("×").split(" ")
        assert float(by) == shown[worst] == max(shown.values())
    keep(page, "what-if")


def walk_by_keyboard(page: object, address: str) -> None:
    """Through every view, with something done in each, by keys alone."""
    page.goto(f"{address}#/fabric")
    page.reload()
    expect(page.locator("#facts")).to_be_visible()
    # Tab reaches the map, arrows its nodes, and Enter picks one.
    tab_to(page, "#fabric canvas")
    press(page, "ArrowRight", "ArrowRight", "Enter")
    expect(page.locator("#details h3")).to_contain_text("spine")
    press(page, "Escape")
    open_view(page, "Jobs")
    tab_to(page, "#jobs tbody button")
    press(page, "Enter")
    expect(page.locator("#explain .sentences li").first).to_be_visible()
    open_view(page, "Circles")
    expect(page.locator("#circle, #time-shifts").first).to_be_visible()
    tab_to(page, "#circle input[name=link]")
    open_view(page, "Timeline")
    tab_to(page, "#timeline input[type=range]")
    press(page, "ArrowLeft", "ArrowLeft", "ArrowLeft")
    expect(page.locator("#moment")).to_be_visible()
    open_view(page, "What-if")
    expect(page.get_by_role("button", name="Simulate")).to_be_enabled()
    tab_to(page, "#what-if button")
    open_view(page, "Operations")
    tab_to(page, "#switches tbody button")
    press(page, "Enter")
    tab_to(page, "#tables tbody button")
    press(page, "Enter")
    expect(page.get_by_role("table", name="Entries of")).to_be_visible()


def open_view(page: object, title: str) -> None:
    page.evaluate("document.activeElement.blur()")
    tab_to(page, "nav a", title)
    press(page, "Enter")
    expect(page.locator("nav [aria-current]")).to_have_text(title)


def press(page: object, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


FOCUSED = "([selector, text]) => document.activeElement.matches(selector) && document.activeElement.textContent.includes(text)"


def tab_to(page: object, selector: str, text: str = "") -> None:
    """Press Tab until something that fits has the focus. It must be there first, and be reached in one round."""
    page.wait_for_selector(selector, state="visible")
    for _ in range(400):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED, [selector, text]):
            return
    raise AssertionError(f"Tab does not reach {selector} {text}")
