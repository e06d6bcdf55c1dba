# SPDX-License-Identifier: Apache-2.0
"""A browser's page with what goes wrong on it, and the findings of axe-core."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe

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
# A panel asks for what this controller may not have, and then says so.
REFUSED = "Failed to load resource: the server responded with a status of "


class Watched:
    """A page, with what went wrong on it and what it asked of other servers."""

    def __init__(self, page: object, server: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

        def only_ours(route: object) -> None:
            if urlsplit(route.request.url).netloc == urlsplit(server).netloc:
                route.continue_()
            else:
                self.foreign.append(route.request.url)
                route.abort()

        page.route("**/*", only_ours)
        page.goto(server)

    def _said(self, message: object) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(
            (REFUSED + "404", REFUSED + "503")
        ):
            self.errors.append(message.text)


def axe_findings_of_themes(page: object) -> list[str]:
    """What axe-core finds on a page as it is loaded, in the light and in the dark theme."""
    found = []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        found += [f"{theme}: {one}" for one in axe_findings(page)]
    return found


def axe_findings(page: object) -> list[str]:
    """What axe-core finds that is serious or critical, one line each."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
