# SPDX-License-Identifier: Apache-2.0
"""The stand-in of the dashboard's bench: of the size that it says, moving, and served as a controller is."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from controller.northbound import render
from controller.northbound.api import create_app
from controller.northbound.paging import PageStart
from controller.northbound.source import ViewBoard
from controller.northbound.web import serve
from polyrhythm.bench.dashboard import bundle_gzip_kb
from polyrhythm.bench.dashboard.load import load
from polyrhythm.bench.dashboard.stand_in import StandIn, _Status, large, small


def test_it_is_as_large_as_it_says() -> None:
    topology = large()
    assert (len(topology.switches), len(topology.links), len(topology.hosts)) == (1_012, 14_400, 2_048)


def test_every_view_moves_and_is_shown() -> None:
    source = StandIn(small())
    first, second = source.view(1), source.view(2)
    assert [k.load for k in first.links] != [k.load for k in second.links]
    assert all(link.load is not None for link in render.fabric(second, PageStart("fabric"), 1_000).links)
    assert render.job(second.jobs[0], None).iterations > 0


def test_the_load_holds_streams_and_counts_answers(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> dict[str, object]:
        board = ViewBoard()
        board.publish(StandIn(small()).view(0))
        server = await serve(create_app(board, None, _Status(), 0.0), port=0)
        found = await load(server.url, 3, 20, 0.5)
        await server.close()
        return found

    found = asyncio.run(main())
    assert json.loads(capsys.readouterr().out) == {"ready": True}
    assert (found["held"], found["requests"]) == (3, 10)
    # Without operations some of the paths answer 503, as on a standby.
    assert 0 < found["failed"] < 10


def test_the_bundle_is_what_a_browser_loads(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("x" * 1_000)
    (tmp_path / "a.js.map").write_text("y" * 100_000)
    assert bundle_gzip_kb(tmp_path) == pytest.approx(len(gzip.compress(b"x" * 1_000)) / 1e3, rel=0.1)
