# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm pipeline`: write the files that a switch needs besides the P4Info.

`pack` writes the bytes of P4Runtime's `p4_device_config`. For BMv2, the embedded switch, and Stratum on BMv2
that is p4c's JSON. For Stratum on Tofino it is a BfPipelineConfig, made from the folder that p4c's Tofino
back end writes. `traffic-manager` writes the queue settings of Tofino, which no P4 program contains.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.southbound.artefacts import ArtefactError, artefacts_dir, load_artefacts
from polyrhythm.traffic_manager import TRAFFIC_MANAGER_TARGETS, QueueSettings, QueueSettingsError, parse_ports

PACK_TARGETS = ("bmv2", "stratum")
COMPILED_FOLDER = "tofino"

# Field numbers of BfPipelineConfig and its Profile (stratum/hal/lib/barefoot/bf.proto).
_P4_NAME, _BFRUNTIME_INFO, _PROFILES = 1, 2, 3
_PROFILE_NAME, _CONTEXT, _BINARY, _PIPE_SCOPE = 1, 2, 3, 4


class PackError(ValueError):
    """The pipeline cannot be packed. The message says what is missing or wrong, and where."""


@dataclass(frozen=True, slots=True)
class PipelineProfile:
    """One compiled pipeline, and the hardware pipes that run it (empty: all pipes)."""

    name: str
    context: bytes
    binary: bytes
    pipes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TofinoProgram:
    """The output of the Tofino back end for one P4 program."""

    name: str
    bfrt: bytes
    profiles: tuple[PipelineProfile, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm pipeline`."""
    commands = parser.add_subparsers(dest="pipeline_command", metavar="COMMAND", required=True)
    text = "write the bytes of P4Runtime's p4_device_config"
    pack = commands.add_parser("pack", help=text, description=text[0].upper() + text[1:] + ".")
    pack.add_argument("--target", choices=PACK_TARGETS, required=True, help="the switch to pack for")
    pack.add_argument(
        "--compiled",
        type=Path,
        metavar="DIR",
        help="for stratum: the folder with the .conf file of the Tofino back end (default: p4/build/tofino)",
    )
    pack.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        help="file to write (default: polyrhythm.TARGET.bin in the current folder)",
    )
    text = "write Tofino's strict-priority queues and port shaping for deployment"
    manager = commands.add_parser("traffic-manager", help=text, description=text[0].upper() + text[1:] + ".")
    manager.add_argument(
        "--target",
        choices=sorted(TRAFFIC_MANAGER_TARGETS),
        required=True,
        help="the software that reads the file",
    )
    manager.add_argument(
        "--ports",
        default="1-32",
        metavar="PORTS",
        help="front-panel ports, 1 to 65, for example 1-30,32 (default 1-32)",
    )
    manager.add_argument(
        "--speed",
        type=int,
        default=100,
        metavar="GBPS",
        help="speed of each port in Gbit/s: 10, 25, 40, 50 or 100 (default 100)",
    )
    manager.add_argument(
        "--shape",
        type=float,
        metavar="GBPS",
        help="shape each port to this rate in Gbit/s (default: no shaping)",
    )
    manager.add_argument(
        "--queue-cells",
        type=int,
        default=20_000,
        metavar="N",
        help="depth at which a queue drops, in cells of 80 bytes, 1 to 524287 (default 20000)",
    )
    manager.add_argument(
        "--output", "-o", type=Path, metavar="FILE", help="file to write (default: standard output)"
    )
    for command in (pack, manager):
        command.add_argument(
            "--json", action="store_true", help="print JSON: the file and its SHA-256, or the text"
        )


def run(args: argparse.Namespace) -> int:
    """Run one subcommand. Returns 0, or 2 if something is missing or wrong."""
    try:
        if args.pipeline_command == "pack":
            _pack(args.target, args.compiled, args.output, args.json)
        else:
            settings = QueueSettings(parse_ports(args.ports), args.speed, args.shape, args.queue_cells)
            text = TRAFFIC_MANAGER_TARGETS[args.target](settings)
            if args.output is None:
                sys.stdout.write(json.dumps({"text": text}) + "\n" if args.json else text)
            else:
                _write(args.output, text.encode(), as_json=args.json)
    except (PackError, QueueSettingsError, ArtefactError) as error:
        print(f"polyrhythm pipeline: {error}", file=sys.stderr)
        return 2
    return 0


def bf_pipeline_config(program: TofinoProgram) -> bytes:
    """The serialised BfPipelineConfig for Stratum's `p4_device_config`, fields in ascending order."""
    profiles = b"".join(_field(_PROFILES, _profile(profile)) for profile in program.profiles)
    return _field(_P4_NAME, program.name.encode()) + _field(_BFRUNTIME_INFO, program.bfrt) + profiles


def read_compiled(folder: Path) -> TofinoProgram:
    """Read the compiled program whose .conf file is in `folder`.

    The paths in the .conf file are tried relative to the folder and to its parent. If nothing is there, their
    last parts are tried, because the compiler may have written the paths of a later installation.

    Raises:
        PackError: a file is missing or not legal.
    """
    found = sorted(folder.glob("*.conf")) if folder.is_dir() else []
    if len(found) != 1:
        what = f"{len(found)} .conf files" if found else "no .conf file"
        raise PackError(
            f"{what} in {folder}: pack needs a compiled Tofino program (its .conf, bfrt.json and, for each "
            "pipe, context.json and tofino.bin). Compile p4/tna/polyrhythm.p4 with p4c's Tofino back end "
            "and name its output by --compiled; docs/tofino.md says how"
        )
    [conf] = found
    try:
        [device] = json.loads(conf.read_bytes())["p4_devices"]
        [program] = device["p4_programs"]
        name = program["program-name"]
        bfrt = _read(conf, program["bfrt-config"])
        profiles = tuple(
            PipelineProfile(
                pipeline["p4_pipeline_name"],
                _read(conf, pipeline["context"]),
                _read(conf, pipeline["config"], is_json=False),
                tuple(int(pipe) for pipe in pipeline.get("pipe_scope", ())),
            )
            for pipeline in program["p4_pipelines"]
        )
    except OSError as error:
        raise PackError(f"{error.filename}: {error.strerror}") from None
    except PackError:
        raise
    except KeyError as error:
        raise PackError(f"{conf}: has no {error}; was it written by the Tofino back end?") from None
    except (ValueError, TypeError, AttributeError):
        raise PackError(
            f"{conf}: does not describe one device with one P4 program, as the Tofino back end writes it"
        ) from None
    if not profiles:
        raise PackError(f"{conf}: the program {name} has no pipeline")
    return TofinoProgram(name, bfrt, profiles)


def _pack(target: str, compiled: Path | None, output: Path | None, as_json: bool) -> None:
    if target == "bmv2":
        if compiled is not None:
            raise PackError("--compiled is only for --target stratum; the program of BMv2 is in p4/build")
        config = load_artefacts().device_config
        what = "BMv2 JSON"
    else:
        program = read_compiled(compiled if compiled is not None else artefacts_dir() / COMPILED_FOLDER)
        config = bf_pipeline_config(program)
        what = f"BfPipelineConfig of {program.name}, profiles {', '.join(p.name for p in program.profiles)}"
    _write(output if output is not None else Path(f"polyrhythm.{target}.bin"), config, what, as_json=as_json)


def _write(path: Path, content: bytes, what: str | None = None, *, as_json: bool = False) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise PackError(f"{path}: {error.strerror}") from None
    digest = hashlib.sha256(content).hexdigest()
    if as_json:
        print(json.dumps({"file": str(path), "bytes": len(content), "content": what, "sha256": digest}))
        return
    print(f"{path}: {len(content)} bytes{f', {what}' if what else ''}, SHA-256 {digest}")


def _read(conf: Path, named: str, is_json: bool = True) -> bytes:
    place = next((path for path in _places(conf, Path(named)) if path.is_file()), None)
    if place is None:
        raise PackError(f"{conf}: names {named}, which does not exist")
    content = place.read_bytes()
    if not content:
        raise PackError(f"{place}: is empty")
    if is_json:
        try:
            _any: Any = json.loads(content)
        except ValueError:
            raise PackError(f"{place}: is not JSON") from None
    return content


def _places(conf: Path, named: Path) -> Iterator[Path]:
    # An absolute path stays the same when it is joined to a folder.
    yield conf.parent / named
    yield conf.parent.parent / named
    for start in range(1, len(named.parts)):
        yield conf.parent.joinpath(*named.parts[start:])


def _profile(profile: PipelineProfile) -> bytes:
    # proto3 packs repeated numbers, and omits empty fields.
    pipes = b"".join(map(_varint, profile.pipes))
    return (
        _field(_PROFILE_NAME, profile.name.encode())
        + _field(_CONTEXT, profile.context)
        + _field(_BINARY, profile.binary)
        + (_field(_PIPE_SCOPE, pipes) if pipes else b"")
    )


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
