# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench compress`: that the figures are of what they say."""

import argparse
import json

import numpy as np
import pytest

from controller.priority.compress import compress_graph
from polyrhythm.bench import compress as bench


def test_instances_are_of_the_size_and_density_said() -> None:
    graph = bench.instance(500, 1)
    pairs = 500 * 499 / 2
    assert graph.size == 500
    assert len(graph.weight) / pairs == pytest.approx(0.23, abs=0.01)
    assert (graph.superior < graph.inferior).all()
    again = bench.instance(500, 1)
    assert np.array_equal(again.weight, graph.weight)


@pytest.mark.slow
def test_the_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(bench, "_REPEATS", {30: 3, 500: 3})
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    assert bench.run(parser.parse_args(["--json"])) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["levels"], report["orders"]) == (8, 10)
    assert report["same_cut"] is True
    graph = bench.instance(500, 1)
    assert report["cut_n500"] == graph.cut(compress_graph(graph, 8, seed=1, plain=False))
    assert {"n30_ms", "n500_ms", "n30_edges", "n500_dag_ms", "plain_n500_ms", "speedup_n500"} <= set(report)


def test_without_numba_there_is_nothing_to_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "available", lambda: False)
    assert bench.run(argparse.Namespace(seed=1, json=True)) == 1
    assert "Numba is not installed" in capsys.readouterr().err
