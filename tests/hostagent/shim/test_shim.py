# SPDX-License-Identifier: Apache-2.0
"""The verbs shim in a program that loads verbs as NCCL does, over a libibverbs with versioned names."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_rig import eventually
from hypothesis import given, settings
from hypothesis import strategies as st
from port_map_reader import PortMapError, flow_label, parse_port_map
from shim_rig import SHIM, needs_compiler

from hostagent.nic.port_map import PortMap, write_port_map


class Program:
    """The program with its queue pairs in RTS, and the fake library's log."""

    def __init__(self, folder: Path, work: Path, program: str, *addresses: str, **environment: str) -> None:
        self.log = work / "verbs.log"
        self.shim_log = work / "shim.log"
        self.map = work / "ports"
        self.process = subprocess.Popen(
            [folder / program, *addresses], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={
                "LD_LIBRARY_PATH": str(folder), "FAKE_LOG": str(self.log), "POLYRHYTHM_PORT_MAP": str(self.map),
                "POLYRHYTHM_SHIM_LOG": str(self.shim_log), **environment,
            },
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", self.process.wait()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def seen(self, what: str) -> list[tuple[int, int]]:
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [(int(number), int(value)) for kind, number, value in lines if kind == what]

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(300)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def launch(built: Path, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    running: list[Program] = []

    def start(
        *addresses: str, program: str = "like_nccl", map_text: str | None = None, **more: str
    ) -> Program:
        if map_text is not None:
            (tmp_path / "ports").write_text(map_text)
        environment = {"NCCL_IBVERBS_LIB": str(built / "shim" / "libpolyrhythm-verbs.so"), **more}
        environment = {key: value for key, value in environment.items() if value}
        running.append(Program(built, tmp_path, program, *addresses, **environment))
        return running[-1]

    yield start
    for each in running:
        if each.process.poll() is None:
            each.end()


Launch = Callable[..., Program]


@needs_compiler
def test_labels_are_set_on_the_way_to_rtr_in_turn(launch: Launch) -> None:
    text = "10.0.0.1,10.0.0.2=50000,50001\n10.0.0.1,10.0.0.3=49152\n10.0.0.9,10.0.0.4=50009\n"
    program = launch("10.0.0.2", "10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.4", map_text=text)
    labels = dict(program.seen("label"))
    ports = [50000, 50001, 50000, 49152]
    assert [labels[n] for n in (1, 2, 3, 4)] == [flow_label(port) for port in ports]
    # A pair that the map does not name keeps NCCL's label, which is 0.
    assert labels[5] == 0
    assert program.seen("port") == []
    assert program.end() == 0


@needs_compiler
def test_every_other_function_is_the_librarys_own(launch: Launch) -> None:
    """The program itself ends with 3 to 5 where dlvsym finds something else, or a version too many."""
    assert launch("10.0.0.2").end() == 0


@needs_compiler
@pytest.mark.parametrize("mode", ["preload", "path"])
def test_the_other_two_ways_in(launch: Launch, built: Path, mode: str) -> None:
    shim = built / "shim"
    ways = {
        "preload": {"program": "linked", "LD_PRELOAD": str(shim / "libpolyrhythm-verbs.so")},
        "path": {"LD_LIBRARY_PATH": f"{shim / 'first'}:{built}"},
    }
    way = {"NCCL_IBVERBS_LIB": "", **ways[mode]}
    program = launch("10.0.0.2", map_text="10.0.0.1,10.0.0.2=50123\n", **way)
    assert program.seen("label") == [(1, flow_label(50123))]
    assert program.end() == 0


@needs_compiler
def test_queue_pairs_in_rts_move_when_the_map_changes(launch: Launch, tmp_path: Path) -> None:
    program = launch("10.0.0.2", "10.0.0.2", "10.0.0.3", map_text="10.0.0.1,10.0.0.2=50000\n")
    write_port_map(
        tmp_path / "ports", {("10.0.0.1", "10.0.0.2"): (50000, 50007), ("10.0.0.1", "10.0.0.3"): (51000,)}
    )
    eventually(lambda: len(program.seen("port")) == 2, "two moves")
    assert sorted(program.seen("port")) == [(2, 50007), (3, 51000)]
    # One that is gone is not touched, and its turn is free again for a later one.
    program.tell("destroy 1")
    write_port_map(tmp_path / "ports", {("10.0.0.1", "10.0.0.2"): (50002, 50008)})
    eventually(lambda: len(program.seen("port")) == 3, "the third move")
    assert program.seen("port")[-1] == (2, 50008)
    assert program.end() == 0


@needs_compiler
def test_a_map_that_comes_later_and_a_directory_that_goes(launch: Launch, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    program = launch("10.0.0.2", POLYRHYTHM_PORT_MAP=str(folder / "ports"))
    assert program.seen("label") == [(1, 0)]
    for port in (50010, 50011):
        folder.mkdir()
        write_port_map(folder / "ports", {("10.0.0.1", "10.0.0.2"): (port,)})
        eventually(lambda port=port: (1, port) in program.seen("port"), f"moved to {port}")
        shutil.rmtree(folder)
    assert program.end() == 0


@needs_compiler
@pytest.mark.parametrize(
    "broken",
    [
        "10.0.0.1,10.0.0.2=50001,500",  # cut in a number
        "10.0.0.1,10.0.0.2=50001",  # no end of line
        "# polyrhythm 1 entries=2\n10.0.0.1,10.0.0.2=50001\n",  # cut at a line's end
        "10.0.0.1,10.0.0.2=80\n",
        "10.0.0.1,10.0.0.2=\n",
        "10.0.0.1=50001\n",
        "10.0.0.1,10.0.0.2=50001\nnonsense\n",
        "\x00\x01\xff\xfe" * 100,
    ],
)
def test_a_map_that_is_not_whole_changes_nothing(launch: Launch, tmp_path: Path, broken: str) -> None:
    program = launch("10.0.0.2", map_text="10.0.0.1,10.0.0.2=50000\n")
    (tmp_path / "ports").write_text(broken)
    eventually(lambda: "refused" in program.shim_log.read_text(), "a refusal in the shim's log")
    assert program.seen("port") == []
    write_port_map(tmp_path / "ports", {("10.0.0.1", "10.0.0.2"): (50005,)})
    eventually(lambda: program.seen("port") == [(1, 50005)], "the next whole map")
    with pytest.raises(PortMapError):
        parse_port_map(broken)
    assert program.end() == 0


@needs_compiler
def test_whatever_fails_leaves_the_call_as_it_was(launch: Launch) -> None:
    text = "10.0.0.1,10.0.0.2=50000\n"
    refused = launch("10.0.0.2", map_text=text, FAKE_REFUSES_LABELS="1")
    assert refused.seen("label") == [(1, 0)]
    assert refused.seen("state")[-1] == (1, 3)
    assert "without it taken" in refused.shim_log.read_text()
    assert refused.end() == 0


@needs_compiler
@pytest.mark.parametrize("way", [{"FAKE_GID": "no address"}, {"POLYRHYTHM_PORT_MAP": "/proc/self/mem"}])
def test_without_an_address_or_a_map_nothing_is_pinned(launch: Launch, way: dict[str, str]) -> None:
    program = launch("10.0.0.2", map_text="10.0.0.1,10.0.0.2=50000\n", **way)
    assert program.seen("label") == [(1, 0)]
    assert program.end() == 0


@needs_compiler
def test_a_move_that_mlx5_refuses_is_logged_and_harms_nothing(launch: Launch, tmp_path: Path) -> None:
    program = launch("10.0.0.2", map_text="10.0.0.1,10.0.0.2=50000\n", FAKE_REFUSES_MOVES="1")
    write_port_map(tmp_path / "ports", {("10.0.0.1", "10.0.0.2"): (50005,)})
    eventually(lambda: "moved" in program.shim_log.read_text(), "a word of the refusal")
    assert "Operation not supported" in program.shim_log.read_text()
    assert program.end() == 0


@needs_compiler
def test_a_forked_child_has_queue_pairs_of_its_own(launch: Launch) -> None:
    program = launch("10.0.0.2", map_text="10.0.0.1,10.0.0.2=50000,50001\n")
    program.tell("fork")
    labels = [label for _, label in program.seen("label")]
    assert labels == [flow_label(50000), flow_label(50000)]
    assert program.end() == 0


@needs_compiler
def test_many_queue_pairs(launch: Launch) -> None:
    ports = tuple(range(50000, 50064))
    text = "10.0.0.1,10.0.0.2=" + ",".join(map(str, ports)) + "\n"
    program = launch(*["10.0.0.2"] * 256, map_text=text)
    labels = dict(program.seen("label"))
    assert [labels[n + 1] for n in range(256)] == [flow_label(ports[n % 64]) for n in range(256)]
    assert program.end() == 0


@needs_compiler
def test_the_declared_layouts_are_rdma_cores() -> None:
    if not Path("/usr/include/infiniband/verbs.h").exists():
        pytest.skip("needs rdma-core's header (libibverbs-dev)")
    subprocess.run(["make", "-s", "-C", str(SHIM), "check"], check=True, env=dict(os.environ))


def test_the_flow_label_gives_the_port_by_the_nics_formula() -> None:
    for port in range(0xC000, 0x10000):
        label = flow_label(port)
        assert label
        assert ((label & 0x3FFF) ^ (label >> 14)) | 0xC000 == port


addresses = st.ip_addresses(v=4).map(str)
maps = st.dictionaries(
    st.tuples(addresses, addresses),
    st.lists(st.integers(0xC000, 0xFFFF), min_size=1, max_size=5).map(tuple),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(maps, st.integers(0, 10_000))
def test_no_prefix_of_a_written_map_is_taken_for_a_map(
    tmp_path_factory: pytest.TempPathFactory, entries: PortMap, cut: int
) -> None:
    path = tmp_path_factory.mktemp("map") / "ports"
    write_port_map(path, entries)
    text = path.read_text()
    assert parse_port_map(text) == entries
    assert [p.name for p in path.parent.iterdir()] == ["ports"]
    part = text[: cut % len(text)]
    if part:
        with pytest.raises(PortMapError):
            parse_port_map(part)
