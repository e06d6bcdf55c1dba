# SPDX-License-Identifier: Apache-2.0
"""The shims and the tests' own libibverbs and libmlx5, compiled."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "tests" / "data" / "verbs"
SHIM = ROOT / "hostagent" / "shim"
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler (cc)")


def steers() -> bool:
    """Whether the kernel has IP_LOCAL_PORT_RANGE (Linux 6.3)."""
    with socket.socket() as made:
        try:
            made.getsockopt(socket.IPPROTO_IP, 51)
        except OSError:
            return False
        return True


def compile_c(*arguments: str) -> None:
    done = subprocess.run(
        ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g", f"-I{SHIM}", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def compile_fakes(folder: Path) -> None:
    """libibverbs.so.1 and libmlx5.so.1 of the tests, and the program in both kinds."""
    for name, soname in (("fake_verbs", "libibverbs.so.1"), ("fake_mlx5", "libmlx5.so.1")):
        compile_c(
            "-shared", "-fPIC", f"-Wl,-soname,{soname}", f"-Wl,--version-script={SOURCES / name}.map",
            "-o", str(folder / soname), str(SOURCES / f"{name}.c"),
        )  # fmt: skip
    compile_c("-o", str(folder / "like_nccl"), str(SOURCES / "like_nccl.c"), "-ldl")
    compile_c(
        "-DLINKED",
        "-o",
        str(folder / "linked"),
        str(SOURCES / "like_nccl.c"),
        str(folder / "libibverbs.so.1"),
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verbs")
    compile_fakes(folder)
    made = subprocess.run(
        ["make", "-s", "-C", str(SHIM), f"BUILD={folder / 'shim'}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return folder
