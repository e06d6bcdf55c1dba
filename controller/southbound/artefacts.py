# SPDX-License-Identifier: Apache-2.0
"""Find and load the compiled P4 program, and compute the cookie that identifies a build."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PROGRAM = "polyrhythm.v1model"
_P4INFO = ".p4info.txtpb"
# Endings of a device config: the packed pipeline of a hardware target, or BMv2's JSON.
_CONFIGS = (".bin", ".json")


class ArtefactError(ValueError):
    """The artefacts are missing or unreadable; the message names the folder or file."""


@dataclass(frozen=True, slots=True)
class Artefacts:
    """One build of the P4 program. `cookie` is the start of a SHA-256 over both files."""

    p4info: bytes
    device_config: bytes
    cookie: int


def artefacts_dir() -> Path:
    """The folder of the artefacts: data of the installed top package, or `p4/build` of a source tree."""
    # The top package is located but not imported: this package must not depend on it.
    top = find_spec("polyrhythm")
    if top is not None:
        for location in top.submodule_search_locations or ():
            installed = Path(location) / "p4build"
            if (installed / f"{PROGRAM}.json").is_file():
                return installed
    return Path(__file__).resolve().parents[2] / "p4" / "build"


def load_artefacts(folder: Path | None = None) -> Artefacts:
    """Read P4Info (text format) and the device config beside it from `folder`, by default `artefacts_dir()`.

    The folder holds one NAME.p4info.txtpb, and NAME.bin (what `polyrhythm pipeline pack` writes for a
    hardware target) or NAME.json (BMv2's); with both, NAME.bin is taken. Neither is looked into.

    Raises:
        ArtefactError: a file is missing, cannot be read, or there are several.
    """
    place = artefacts_dir() if folder is None else folder
    info, device = _files(place)
    try:
        p4info, config = info.read_bytes(), device.read_bytes()
    except OSError as error:
        raise ArtefactError(
            f"{error.filename}: the compiled P4 program cannot be read: {error.strerror}"
        ) from None
    if not config:
        raise ArtefactError(f"{device}: the file is empty; a compiled P4 program was expected")
    digest = hashlib.sha256(len(p4info).to_bytes(8, "big") + p4info + config).digest()
    return Artefacts(p4info, config, int.from_bytes(digest[:8], "big"))


def _files(place: Path) -> tuple[Path, Path]:
    """The P4Info of a folder and the device config of the same name."""
    found = sorted(place.glob(f"*{_P4INFO}"))
    if len(found) != 1:
        count = ", ".join(info.name for info in found) if found else "none"
        raise ArtefactError(
            f"{place}: the folder must hold exactly one compiled P4 program, NAME{_P4INFO} with NAME.bin or "
            f"NAME.json; P4Infos found: {count} (`make p4` builds the program for BMv2)"
        )
    [info] = found
    name = info.name.removesuffix(_P4INFO)
    for ending in _CONFIGS:
        if (place / f"{name}{ending}").is_file():
            return info, place / f"{name}{ending}"
    raise ArtefactError(
        f"{info}: no device config was found beside it; expected {name}.bin (`polyrhythm pipeline pack` "
        f"writes it) or {name}.json"
    )
