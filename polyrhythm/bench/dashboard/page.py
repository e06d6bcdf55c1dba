# SPDX-License-Identifier: Apache-2.0
"""How fast the page draws a fabric: in Chromium without a GPU, after a navigation and again."""

from __future__ import annotations

import math
import shutil
import statistics
from typing import Any

NAVIGATIONS = 5
REDRAWS = 60
WIDTH, HEIGHT = 1600, 1000
LONGEST_S = 60
# As on a machine without a GPU; --no-sandbox, for root may not use one.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

# The page notes each drawing of the map as a measure of User Timing; its times count from the navigation.
_FIRST_PICTURE = """async () => {
  const drawn = () => performance.getEntriesByName("fabric map");
  while (drawn().length === 0) await new Promise((next) => setTimeout(next, 5));
  const { startTime, duration } = drawn()[0];
  // Commands that the canvas has kept back are carried out before a pixel is read.
  const started = performance.now();
  document.querySelector(".canvas canvas").getContext("2d").getImageData(0, 0, 1, 1);
  return startTime + duration + (performance.now() - started);
}"""

# Another overlay has other colours for every cable, so the whole map is drawn anew.
_REDRAW = """async (overlay) => {
  const drawn = () => performance.getEntriesByName("fabric map");
  performance.clearMeasures("fabric map");
  location.hash = `#/fabric?overlay=${overlay}`;
  while (drawn().length === 0) await new Promise((next) => setTimeout(next, 0));
  const started = performance.now();
  document.querySelector(".canvas canvas").getContext("2d").getImageData(0, 0, 1, 1);
  return drawn()[0].duration + (performance.now() - started);
}"""


class NoBrowserError(Exception):
    """There is no Playwright or no Chromium; the message says what to install."""


def measure_page(url: str) -> dict[str, Any]:
    """Figures of the page at `url`, in ms: `first_picture_ms`, the median of 5 navigations, each in a new
    profile; `redraw_ms`, the 95th percentile of 60 drawings of the whole map.

    Raises:
        NoBrowserError: Playwright or Chromium is not installed.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NoBrowserError("Playwright is not installed: pip install playwright") from None
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise NoBrowserError("no browser: install Debian's chromium (apt-get install chromium)")
    first: list[float] = []
    again: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=list(ARGUMENTS))
        for _ in range(NAVIGATIONS):
            context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
            page = context.new_page()
            page.set_default_timeout(LONGEST_S * 1000)
            page.goto(url)
            first.append(page.evaluate(_FIRST_PICTURE))
            if len(first) == NAVIGATIONS:
                again = [page.evaluate(_REDRAW, ("marks", "load")[n % 2]) for n in range(REDRAWS)]
            context.close()
        browser.close()
    return {
        "first_picture_ms": round(statistics.median(first), 1),
        "redraw_ms": round(sorted(again)[math.ceil(0.95 * len(again)) - 1], 1),
    }
