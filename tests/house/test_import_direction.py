# SPDX-License-Identifier: Apache-2.0
"""The house stands: a room imports only what stands below it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Longest prefix wins. Rooms of one floor do not import one another, except inside `controller`.
FLOORS = {
    "polyrhythm_files": -1,
    "topo": 0,
    "controller.kernel": 1,
    "controller.wire": 0,
    "controller.model": 1,
    "controller.measure": 2,
    "controller.routing": 2,
    "controller.priority": 2,
    "controller.interleave": 2,
    "controller.placement": 2,
    "controller.planner": 3,
    "controller": 4,
    "controller.agents": 5,
    "controller.process": 6,
    "hostagent": 6,
    "bmv2": 6,
    "sim": 6,
    "polyrhythm_job": 0,
    "polyrhythm": 7,
}
OURS = {"topo", "controller", "hostagent", "bmv2", "sim", "polyrhythm", "polyrhythm_files", "polyrhythm_job"}
# Folders of the packages that do not lie in the root.
FOLDERS = {"polyrhythm_job": ROOT / "hostagent" / "job_library"}


def room(module: str) -> str:
    parts = module.split(".")
    return next(p for n in range(len(parts), 0, -1) if (p := ".".join(parts[:n])) in FLOORS)


def modules() -> list[tuple[str, Path]]:
    found = []
    for package in sorted(OURS):
        top = FOLDERS.get(package, ROOT)
        for path in sorted((top / package).rglob("*.py")):
            inside_another = any(f in path.parents and f != top for f in FOLDERS.values())
            if "_pb2" not in path.name and not inside_another:
                name = ".".join(path.relative_to(top).with_suffix("").parts)
                found.append((name.removesuffix(".__init__"), path))
    return found


def imports(name: str, path: Path) -> set[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    result = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
                result.add(f"{base}.{node.module}" if node.module else base)
            elif node.module:
                result.add(node.module)
                # `from controller import planner` names the room in the alias.
                result |= {
                    f"{node.module}.{a.name}" for a in node.names if f"{node.module}.{a.name}" in FLOORS
                }
    return result


def allowed(importer: str, imported: str) -> bool:
    here, there = room(importer), room(imported)
    if here == there or (here == "hostagent" and imported.startswith("controller.wire")):
        return True
    if there == "polyrhythm_files" or (here == "hostagent" and there == "polyrhythm_job"):
        return True
    if here in {"hostagent", "bmv2"}:
        return False
    return FLOORS[there] < FLOORS[here]


@pytest.mark.parametrize(("name", "path"), modules(), ids=lambda v: v if isinstance(v, str) else "")
def test_imports_point_downward(name: str, path: Path) -> None:
    wrong = [i for i in imports(name, path) if i.split(".")[0] in OURS and not allowed(name, i)]
    assert wrong == [], f"{name} ({room(name)}) must not import {wrong}"


def test_only_the_ryu_application_and_its_events_know_os_ken() -> None:
    users = {n for n, p in modules() if any(i.split(".")[0] == "os_ken" for i in imports(n, p))}
    assert users == {"controller.app", "controller.events"}


def test_what_decides_knows_no_socket_no_clock_and_no_process() -> None:
    pure = (
        *(r for r, floor in FLOORS.items() if r.startswith("controller.") and floor < 4),
        "controller.live",
    )
    shells = {"asyncio", "socket", "select", "selectors", "time", "grpc", "subprocess", "multiprocessing"}
    users = {
        name
        for name, path in modules()
        if name.startswith(pure) and {i.split(".")[0] for i in imports(name, path)} & shells
    }
    # Controller and agent share the log, and it writes to a stream that may be a socket.
    assert users == {"controller.wire.immediate_writes"}


def test_p4_is_no_python_package() -> None:
    # The P4Runtime messages live in a package `p4`, which an __init__.py here would hide.
    assert list((ROOT / "p4").rglob("__init__.py")) == []
    assert (ROOT / "p4" / "build").is_dir()
