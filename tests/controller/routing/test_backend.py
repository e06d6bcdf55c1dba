# SPDX-License-Identifier: Apache-2.0
"""Which implementation of the hot loops runs: the plain one only where the kernels would take longer."""

import sys

import pytest

from controller.routing import backend


@pytest.mark.parametrize(
    ("flows", "numba", "loaded", "cold", "plain"),
    [
        (10, False, False, False, True),
        (10, True, False, True, True),
        (10, True, False, False, False),
        (10, True, True, True, False),
        (backend.SMALL, False, False, True, False),
    ],
)
def test_plain_loops_only_where_kernels_take_longer(
    monkeypatch: pytest.MonkeyPatch, flows: int, numba: bool, loaded: bool, cold: bool, plain: bool
) -> None:
    for name, there in (("numba", numba), (backend.KERNELS, loaded)):
        monkeypatch.delitem(sys.modules, name, raising=False)
        if there:
            monkeypatch.setitem(sys.modules, name, sys)
    monkeypatch.setattr(backend, "cold", lambda: cold)
    assert backend.plain_suffices(flows) is plain


@pytest.mark.parametrize(("flows", "plain"), [(backend.BEARABLE - 1, True), (backend.BEARABLE, False)])
def test_many_flows_do_not_wait_for_the_compilation_by_another_process(
    monkeypatch: pytest.MonkeyPatch, flows: int, plain: bool
) -> None:
    monkeypatch.setattr(backend, "available", lambda: False)
    assert backend.plain_suffices(flows) is plain
