# SPDX-License-Identifier: Apache-2.0
"""One session: a fabric process and a controller process, from start to the recorded iterations."""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyrhythm.fabric.boundary import SILENCE_S
from polyrhythm.fabric.presence import Presence
from polyrhythm.rest_client import all_pages
from polyrhythm.run.figures import MeasuredIteration
from polyrhythm.run.processes import Process, RunError

log = logging.getLogger(__name__)

# Host time that the controller has to end after the fabric has reported an error. Chosen.
END_S = 1.0


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What a session runs.

    `mode` is "together" (all jobs at once) or "alone" (one job after another, to profile them). `profiles` is
    the file with the profiles that a former session "alone" measured; the jobs announce them. `profile` is
    "measured" or "declared": with "measured" the controller profiles the jobs itself, and iterations count
    once it has profiled all of them. `fabric` is "embedded" or "mininet". `pace` is fabric seconds per host
    second; 0: as fast as possible. With `forever` the session runs until it is stopped; with `until_ms` until
    this fabric time, whatever the jobs have done (embedded only). `rpc_delay_ms` delays every RPC by host
    time. `web_port` is the port of the page, 0: any free one. `fail` lists failures as in `--fail`, besides
    those of the scenario. Iterations count from the fabric time `count_from_ns` on; a controller that says
    nothing for `silence_s` of host time is given up (both embedded only). Without `floods` those of the
    scenario are left out; `strays` replaces the scenario's key unless it is "" (both embedded only). `scale`
    replaces that of the scenario, and so do `warmup` and `iterations`, of which only the latter are measured.
    """

    scenario: Path
    policy: str
    mode: str
    seed: int
    workdir: Path
    profiles: Path | None = None
    random_offsets: bool = False
    pace: float = 0.0
    forever: bool = False
    until_ms: int = 0
    rpc_delay_ms: float = 0.0
    web_port: int = 0
    fail: tuple[str, ...] = ()
    policy_options: tuple[str, ...] = ()
    fabric: str = "embedded"
    profile: str = "declared"
    count_from_ns: int = 0
    floods: bool = True
    strays: str = ""
    silence_s: float = SILENCE_S
    scale: float | None = None
    warmup: int | None = None
    iterations: int | None = None


@dataclass(frozen=True, slots=True)
class SessionResult:
    """The result of a session.

    `iterations` and `profiles` map the name of each job to its recorded iterations and its measured profile
    (a job that left early may have none). `presence` says when each job was on the fabric, and `ended_ns` is
    the fabric time at the end of the session. `plan` is the last plan of the controller as JSON values.
    `failovers` has one entry for each failure. `pfc` says what priority flow control did (docs/run.md), None:
    the scenario has none. `load` is the part of the machine's CPU time that all jobs together would take, as
    the jobs alone show it, None: the mode is not "alone", or time is not the machine's.
    """

    iterations: Mapping[str, tuple[MeasuredIteration, ...]]
    profiles: Mapping[str, Any]
    plan: Mapping[str, Any] | None
    deterministic: bool
    notes: tuple[str, ...]
    failovers: tuple[Mapping[str, Any], ...] = ()
    presence: Mapping[str, Presence] = field(default_factory=dict)
    ended_ns: int = 0
    pfc: Mapping[str, Any] | None = None
    load: float | None = None


class FabricSession:
    """The two processes of a session. They start together and end together."""

    def __init__(self, spec: SessionSpec) -> None:
        self.spec = spec
        self.web = ""
        self._fabric: Process | None = None
        self._controller: Process | None = None

    async def start(self) -> None:
        """Start the fabric, then its controller, and tell the fabric the controller's address.

        Raises:
            RunError: one of the processes ended instead.
        """
        spec = self.spec
        spec.workdir.mkdir(parents=True, exist_ok=True)
        self._fabric = await Process.spawn("fabric", self._fabric_arguments(), spec.workdir / "fabric.log")
        ready = await self._fabric.expect("ready")
        description = spec.workdir / "fabric.json"
        description.write_text(json.dumps(ready["fabric"]))
        self._controller = await Process.spawn(
            "controller",
            [
                "controller",
                f"--fabric={description}",
                f"--policy={spec.policy}",
                f"--seed={spec.seed}",
                f"--web-port={spec.web_port}",
                f"--rpc-delay-ms={spec.rpc_delay_ms}",
                f"--state={self._state()}",
                *spec.policy_options,
                *([f"--agents-address={ready['agents']}"] if "agents" in ready else []),
            ],
            spec.workdir / "controller.log",
        )
        answer = await self._controller.expect("ready")
        self.web = answer["web"]
        await self._fabric.send({"controller": answer["agents"], "web": answer["web"]})

    def _state(self) -> str:
        """Where the controller keeps the past that the page shows. A session that is measured shows none, and
        the past of an earlier session in the same folder is of another fabric."""
        if not self.spec.forever:
            return "none"
        for old in self.spec.workdir.glob("state.db*"):
            old.unlink()
        return str(self.spec.workdir / "state.db")

    async def result(self, progress: Callable[[float], None]) -> SessionResult:
        """Wait for the end of the session. `progress` is called with the finished fraction.

        Raises:
            RunError: a process ended without a result, or the fabric reported an error.
        """
        reading = asyncio.ensure_future(self._read(progress))
        ended = asyncio.ensure_future(self.controller_ended())
        try:
            await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and reading.exception() is not None:
                # The fabric may notice the end of its controller first; the process says more about it.
                await asyncio.wait({ended}, timeout=END_S)
            if not ended.done():
                return reading.result()
            raise ended.result()
        finally:
            for task in (reading, ended):
                task.cancel()
            await asyncio.gather(reading, ended, return_exceptions=True)

    async def _read(self, progress: Callable[[float], None]) -> SessionResult:
        assert self._fabric is not None
        async for message in self._fabric.messages():
            if "progress" in message:
                progress(message["progress"])
            elif "waiting" in message:
                folder = self.spec.workdir
                log.warning("%s/%s: %s", folder.parent.name, folder.name, message["waiting"])
            elif "error" in message:
                raise RunError(message["error"])
            elif "result" in message:
                raw = message["result"]
                return SessionResult(
                    iterations={
                        job: tuple(MeasuredIteration(**record) for record in records)
                        for job, records in raw["iterations"].items()
                    },
                    profiles=raw["profiles"],
                    plan=await self._plan(),
                    deterministic=raw["deterministic"],
                    notes=tuple(raw["notes"]),
                    failovers=tuple(raw["failovers"]),
                    presence={job: Presence(**own) for job, own in raw["presence"].items()},
                    ended_ns=raw["ended_ns"],
                    pfc=raw["pfc"],
                    load=raw.get("load"),
                )
        raise await self._fabric.failure()

    async def controller_ended(self) -> RunError:
        """Wait until the controller has ended; returns the reason as an error."""
        assert self._controller is not None
        return await self._controller.failure()

    async def stop(self) -> None:
        """End both processes. The fabric ends first, because it waits for the controller."""
        for process in (self._fabric, self._controller):
            if process is not None:
                await process.stop()

    async def _plan(self) -> Mapping[str, Any] | None:
        """The last plan; None if there is none.

        Raises:
            RunError: the controller did not answer.
        """

        def get(path: str) -> Any:
            try:
                with urllib.request.urlopen(f"{self.web}/api/v1/{path}", timeout=SILENCE_S) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError:
                return None
            except OSError as error:
                raise RunError(f"the controller did not give its plan: {error}") from None

        return await asyncio.to_thread(all_pages, get, "plan?most=1000")

    def _fabric_arguments(self) -> list[str]:
        spec = self.spec
        arguments = [
            "fabric" if spec.fabric == "embedded" else "emulation",
            str(spec.scenario),
            f"--mode={spec.mode}",
            f"--seed={spec.seed}",
        ]
        if spec.fabric == "embedded":
            arguments += [f"--pace={spec.pace}", f"--rpc-delay-ms={spec.rpc_delay_ms}"]
            arguments += [f"--profile={spec.profile}", f"--until-ms={spec.until_ms}"]
            arguments += [f"--count-from-ns={spec.count_from_ns}", f"--silence-s={spec.silence_s}"]
            arguments += [] if spec.floods else ["--without-floods"]
            arguments += [f"--strays={spec.strays}"] if spec.strays else []
        else:
            arguments.append(f"--keep={spec.workdir}")
        if spec.profiles is not None:
            arguments.append(f"--profiles={spec.profiles}")
        if spec.scale is not None:
            arguments.append(f"--scale={spec.scale!r}")
        if spec.warmup is not None:
            arguments.append(f"--warmup={spec.warmup}")
        if spec.iterations is not None:
            arguments.append(f"--iterations={spec.iterations}")
        if spec.random_offsets:
            arguments.append("--random-offsets")
        if spec.forever:
            arguments.append("--forever")
        arguments += [f"--fail={what}" for what in spec.fail]
        return arguments


async def run_session(spec: SessionSpec, progress: Callable[[float], None]) -> SessionResult:
    """Start a session, wait for its result, and end it."""
    session = FabricSession(spec)
    try:
        await session.start()
        return await session.result(progress)
    finally:
        await session.stop()
