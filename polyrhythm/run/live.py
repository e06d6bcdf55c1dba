# SPDX-License-Identifier: Apache-2.0
"""The live fabric: one session at the speed of the wall clock, with its page, until it is stopped."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from polyrhythm.commands.shell import fabric_file
from polyrhythm.run.session import FabricSession, SessionSpec
from polyrhythm.scenario import load_scenario


class Live:
    """A session of one scenario that is paced to the wall clock and runs until it is stopped.

    `scale` replaces that of the scenario.
    """

    def __init__(
        self, scenario: Path, policy: str, seed: int, port: int, fabric: str, scale: float | None = None
    ) -> None:
        self._scenario, self._policy, self._seed, self._port = scenario, policy, seed, port
        self._fabric, self._scale = fabric, scale
        self._session: FabricSession | None = None
        self._described = ""
        self.address = ""

    async def start(self, workdir: Path) -> str:
        """Start the session; returns the address of the page.

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
            scale=self._scale,
        )
        self._session = FabricSession(spec)
        await self._session.start()
        self.address = self._session.web
        descriptor = fabric_file(os.environ, os.getuid())
        descriptor.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        switches = json.loads((workdir / "fabric.json").read_text())["switches"]
        self._described = json.dumps({"switches": switches})
        descriptor.write_text(self._described)
        return self.address

    async def wait(self) -> None:
        """Wait until the caller is cancelled.

        Raises:
            RunError: the fabric or the controller ended by itself.
        """
        assert self._session is not None
        fabric = asyncio.ensure_future(self._session.result(lambda fraction: None))
        controller = asyncio.ensure_future(self._session.controller_ended())
        either: set[asyncio.Future[Any]] = {fabric, controller}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not fabric.done():
                raise controller.result()
            fabric.result()
        finally:
            for task in either:
                task.cancel()
            await asyncio.gather(*either, return_exceptions=True)

    async def stop(self) -> None:
        """End the session and remove its description for `polyrhythm shell`.

        The description stays if another live fabric has replaced it.
        """
        descriptor = fabric_file(os.environ, os.getuid())
        with suppress(OSError):
            if self._described and descriptor.read_text() == self._described:
                descriptor.unlink()
        if self._session is not None:
            await self._session.stop()
