# SPDX-License-Identifier: Apache-2.0
"""Whether the sockets, folders and files that a configuration names are here, as far as this user can see."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from controller.process.config import FabricFile
from hostagent.config import Config
from hostagent.nic_config import NicSettings, RailSettings
from hostagent.tls import check_certificates
from polyrhythm_files import LARGE, ConfigError, InvalidValueError, Loc, convert, read_document

Mistake = tuple[Loc, str]


def agent_places(path: Path) -> list[ConfigError]:
    """What is missing on this host of what an agent's configuration names. Raises ConfigError."""
    document = read_document(path)
    config = convert(document, Config)
    return [document.error(*mistake) for mistake in _of_agent(config)]


def fabric_places(path: Path) -> list[ConfigError]:
    """What is missing here of what a fabric's description names. Raises ConfigError."""
    document = read_document(path, LARGE)
    given = convert(document, FabricFile)
    found: list[Mistake] = []
    for name, switch in given.switches.items():
        if switch.address.startswith("unix:"):
            at = Path(switch.address.removeprefix("unix:"))
            found += _socket(("switches", name, "address"), at, "start the switch, which makes it")
    if given.tls is not None:
        for key in ("ca", "cert", "key"):
            name = getattr(given.tls, key)
            found += _readable(("tls", key), path.parent / name) if name else []
    return [document.error(*mistake) for mistake in found]


def _of_agent(config: Config) -> Iterator[Mistake]:
    agent, nic, sources, training = config.agent, config.nic, config.sources, config.training
    if agent.socket:
        yield from _folder(("agent", "socket"), Path(agent.socket).parent)
    for controller in agent.controllers:
        if controller.startswith("unix:"):
            yield from _socket(
                ("agent", "controller"), Path(controller.removeprefix("unix:")), "start the controller"
            )
    if agent.hosts_file:
        yield from _readable(("agent", "hosts_file"), Path(agent.hosts_file))
    if nic.driver in ("shim", "auto"):
        yield from _folder(("nic", "port_map"), Path(nic.port_map).parent)
    present = [name for _, name in socket.if_nameindex()]
    nics: list[tuple[Loc, NicSettings | RailSettings]] = [(("nic",), nic)]
    for loc, each in nics + [(("rails", n), rail) for n, rail in enumerate(config.rails)]:
        if each.interface and each.interface not in present:
            legal = ", ".join(present)
            yield (*loc, "interface"), f"{each.interface} is no interface of this host; legal: {legal}"
        if each.device and not Path(sources.sysfs, each.device).is_dir():
            words = f"{each.device} is not in {sources.sysfs}; legal: an RDMA device of this host"
            yield (*loc, "device"), words
    for key in ("shim", "inspector"):
        if name := getattr(config.nccl, key):
            yield from _readable(("nccl", key), Path(name))
    if sources.inspector_dir:
        yield from _folder(("sources", "inspector_dir"), Path(sources.inspector_dir))
    for index, job in enumerate(sources.jobs):
        if job.record:
            yield from _folder(("sources", "jobs", index, "record"), Path(job.record).parent, write=False)
    for key in ("records", "moves"):
        if name := getattr(training, key):
            yield from _folder(("training", key), Path(name).absolute().parent)
    try:
        check_certificates(config.tls)
    except InvalidValueError as error:
        yield error.loc, error.message


def _folder(loc: Loc, folder: Path, *, write: bool = True) -> Iterator[Mistake]:
    need = "a folder that this user may write to" if write else "a folder"
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            yield loc, f"{folder} is no folder; legal: {need}"
        elif write and not os.access(folder, os.W_OK | os.X_OK):
            yield loc, f"this user may not write to {folder}; legal: {need}"
    except (OSError, ValueError) as error:
        yield loc, f"{folder}: {getattr(error, 'strerror', None) or error}; legal: {need}"


def _readable(loc: Loc, path: Path) -> Iterator[Mistake]:
    try:
        with path.open("rb"):
            pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        yield loc, f"{path}: {why}; legal: a file that this user may read"


def _socket(loc: Loc, path: Path, remedy: str) -> Iterator[Mistake]:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            yield loc, f"{path} is no socket; legal: a Unix socket ({remedy})"
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        yield loc, f"{path}: {why}; legal: a Unix socket ({remedy})"
