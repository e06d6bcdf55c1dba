# SPDX-License-Identifier: Apache-2.0
"""Policies of other packages, as pip leaves them in a folder: modules, metadata and entry points."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from controller.planner import registry

GUIDE = Path(__file__).parents[2] / "docs" / "policies.md"


def files_of_the_guide() -> Mapping[str, str]:
    """The files that docs/policies.md shows, by their path."""
    shown = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return dict(shown)


def modules_of_the_guide() -> Mapping[str, str]:
    """The Python modules of the guide, by name."""
    return {Path(name).stem: text for name, text in files_of_the_guide().items() if name.endswith(".py")}


def install(folder: Path, module: str, source: str, version: str = "1.0") -> None:
    """A distribution with one module, which registers the module's POLICY under the module's name."""
    name = module.replace("_", "-")
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "top_level.txt").write_text(f"{module}\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{name} = {module}:POLICY\n")


def forget() -> None:
    """Let the registry read again what is installed."""
    importlib.invalidate_caches()
    for cached in (registry._entries, registry.registered_policy, registry._imported, registry.resolve):
        cached.cache_clear()


@contextmanager
def on_path(folder: Path) -> Iterator[None]:
    """The packages of a folder are installed; afterwards neither they nor their modules are."""
    sys.path.insert(0, str(folder))
    forget()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in [
            n for n, m in sys.modules.items() if str(getattr(m, "__file__", "")).startswith(f"{folder}/")
        ]:
            del sys.modules[name]
        forget()
