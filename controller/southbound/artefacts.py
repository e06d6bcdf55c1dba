# SPDX-License-Identifier: Apache-2.0
"""The compiled P4 program: where its artefacts are, and the cookie that tells one build from another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PROGRAM = "polyrhythm.v1model"


class ArtefactError(ValueError):
    """The artefacts are missing or unreadable; the message says where they were looked for."""


@dataclass(frozen=True, slots=True)
class Artefacts:
    """One build of the P4 program. `cookie` is the start of a SHA-256 over both files."""

    p4info: bytes
    device_config: bytes
    cookie: int


def artefacts_dir() -> Path:
    """The folder that holds the artefacts.

    An installed wheel carries them as data of the top package; a source tree has them in `p4/build`.
    """
    # The top package is located, never imported: it stands above this room.
    top = find_spec("polyrhythm")
    if top is not None:
        for location in top.submodule_search_locations or ():
            installed = Path(location) / "p4build"
            if (installed / f"{PROGRAM}.json").is_file():
                return installed
    return Path(__file__).resolve().parents[2] / "p4" / "build"


def load_artefacts(folder: Path | None = None) -> Artefacts:
    """Read P4Info (text format) and the BMv2 JSON from `folder`, by default `artefacts_dir()`.

    Raises:
        ArtefactError: a file cannot be read.
    """
    place = artefacts_dir() if folder is None else folder
    try:
        p4info = (place / f"{PROGRAM}.p4info.txtpb").read_bytes()
        config = (place / f"{PROGRAM}.json").read_bytes()
    except OSError as error:
        raise ArtefactError(
            f"the compiled P4 program is not readable ({error.strerror}: {error.filename}); "
            "`make p4` builds it"
        ) from None
    digest = hashlib.sha256(len(p4info).to_bytes(8, "big") + p4info + config).digest()
    return Artefacts(p4info, config, int.from_bytes(digest[:8], "big"))
