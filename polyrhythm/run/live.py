# SPDX-License-Identifier: Apache-2.0
"""The live fabric: one session paced to the wall clock, with the page, until it is stopped."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from polyrhythm.run.session import Session, SessionSpec
from polyrhythm.scenario import load_scenario


def descriptor_path() -> Path:
    """Where the running live fabric says where its switches are (for `make shell`)."""
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    return base / f"polyrhythm-{os.getuid()}" / "fabric.json"


class Live:
    """A paced session of one scenario that runs until stopped."""

    def __init__(self, scenario: Path, policy: str, seed: int, port: int, fabric: str) -> None:
        self._scenario, self._policy, self._seed, self._port = scenario, policy, seed, port
        self._fabric = fabric
        self._session: Session | None = None
        self.address = ""

    async def start(self, workdir: Path) -> str:
        """Start it; returns the page's address.

        Raises:
            RunError: the fabric or the controller did not start.
        """
        spec = SessionSpec(
            scenario=self._scenario,
            policy=self._policy,
            mode="together",
            seed=self._seed,
            workdir=workdir,
            pace=1.0,
            forever=True,
            web_port=self._port,
            fabric=self._fabric,
            profile=load_scenario(self._scenario).profile,
        )
        self._session = Session(spec)
        await self._session.start()
        self.address = self._session.web
        descriptor = descriptor_path()
        descriptor.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        switches = json.loads((workdir / "fabric.json").read_text())["switches"]
        descriptor.write_text(json.dumps({"switches": switches}))
        return self.address

    async def wait(self) -> None:
        """Until the session ends by itself, which is a failure, or the caller is cancelled.

        Raises:
            RunError: the live fabric ended.
        """
        assert self._session is not None
        await self._session.result(lambda fraction: None)

    async def stop(self) -> None:
        """End it and withdraw its description."""
        descriptor_path().unlink(missing_ok=True)
        if self._session is not None:
            await self._session.stop()
