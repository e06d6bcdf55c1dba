# SPDX-License-Identifier: Apache-2.0
"""The only module that knows Numba: it compiles kernels and keeps their code in the user's cache."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

log = logging.getLogger(__name__)

_F = TypeVar("_F", bound=Callable[..., Any])
_decorating = Lock()
_watchers: list[tuple[Callable[[], None], Callable[[], None]]] = []


class KernelsUnavailableError(ImportError):
    """Numba cannot be imported. The caller then uses the plain reference."""


@dataclass
class _Use:
    """Whether this process leaves the kernels out."""

    left_out: bool = False


_use = _Use()


def available() -> bool:
    """Whether this process uses compiled kernels: Numba is installed, and they are not left out. Does not
    import Numba."""
    return installed() and not _use.left_out


@cache
def installed() -> bool:
    """Whether Numba is installed. Does not import it."""
    return importlib.util.find_spec("numba") is not None


def leave_out(yes: bool) -> None:
    """From now on this process uses the plain references, because another one compiles the kernels; or the
    kernels again."""
    _use.left_out = yes


def load_compiler() -> None:
    """Import Numba, where it is installed. This takes some tenths of a second once in a process, and compiles
    nothing."""
    if installed():
        import_module("numba")


def version() -> str | None:
    """The version of Numba, None without Numba. Imports it."""
    if not installed():
        return None
    return str(import_module("numba").__version__)


@cache
def cache_folder(*sources: str | Path) -> Path:
    """The folder in which the machine code of these sources is kept between processes. Does not import Numba.

    Each of `sources` is a Python file, or a folder whose Python files all count. Each state of the sources
    has its own folder, because Numba looks only at the file of the function that is called: not at those of
    the functions it calls, nor at how this file compiles it. NUMBA_CACHE_DIR or XDG_CACHE_HOME set another
    place.
    """
    digest = hashlib.sha256()
    for source in map(Path, (*sources, __file__)):
        for file in sorted(source.glob("*.py")) if source.is_dir() else [source]:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    base = os.environ.get("NUMBA_CACHE_DIR")
    if not base:
        base = os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache"), "polyrhythm", "numba"
        )
    return Path(base) / digest.hexdigest()[:16]


def cold(*sources: str | Path) -> bool:
    """Whether the first use of the kernels in these sources will compile them; False without Numba."""
    return installed() and next(cache_folder(*sources).glob("**/*.nbi"), None) is None


def compiler(*sources: str | Path, inline: bool = False) -> Callable[[_F], _F]:
    """A decorator that compiles a function at its first call and keeps the machine code.

    `sources` are all files (or folders of files) whose functions the kernels call: see `cache_folder`.
    `inline` puts every kernel into its callers, for tight loops of small functions. Such kernels must not
    create arrays, so that no references are counted; counting takes most of the time of a function with many
    array arguments. Division by zero follows NumPy (inf, nan), and the GIL is released. Raises
    KernelsUnavailableError without Numba.
    """
    try:
        numba: Any = import_module("numba")
    except ImportError as error:
        raise KernelsUnavailableError(f"no compiled kernels: {error}") from error
    _listen()
    options = {"forceinline": True, "_nrt": False} if inline else {}
    folder = str(cache_folder(*sources))

    def kernel(function: _F) -> _F:
        # Numba reads the folder from one global setting while it decorates a function. The kernels of other
        # packages have other folders, so the setting is restored.
        with _decorating:
            before = numba.config.CACHE_DIR
            numba.config.CACHE_DIR = folder
            try:
                compiled: Any = numba.njit(nogil=True, error_model="numpy", **options)(function)
                _keep_code(compiled)
            finally:
                numba.config.CACHE_DIR = before
        return cast(_F, compiled)

    return kernel


def _keep_code(compiled: Any) -> None:
    """Keep the machine code of a kernel, where that is possible: a full disk, or a folder that cannot be
    written or read, costs the time of the next compilation, and no plan."""
    try:
        compiled.enable_caching()
    except (OSError, RuntimeError) as error:
        _warn_of_cache(str(error))
        return
    kept = compiled._cache
    load, save = kept.load_overload, kept.save_overload

    def load_overload(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            return _warn_of_cache(str(error))

    def save_overload(*arguments: Any) -> None:
        try:
            save(*arguments)
        except OSError as error:
            _warn_of_cache(str(error))

    kept.load_overload, kept.save_overload = load_overload, save_overload


@cache
def _warn_of_cache(why: str) -> None:
    log.warning("compiled kernels are not kept, so each process compiles them again: %s", why)


def watch_compilations(began: Callable[[], None], ended: Callable[[], None]) -> Callable[[], None]:
    """From now on call these before and after each compilation in this process.

    Returns a function that ends it.
    """
    watcher = (began, ended)
    _watchers.append(watcher)
    return lambda: _watchers.remove(watcher)


@cache
def _listen() -> None:
    """Tell the watchers of Numba's compilations."""
    events: Any = import_module("numba.core.event")

    class Listener(events.Listener):  # type: ignore[misc] # the base class is known at run time only
        depth = 0

        def on_start(self, event: object) -> None:
            # A function is compiled within the compilation of another one that calls it.
            self.depth += 1
            if self.depth == 1:
                for began, _ in _watchers:
                    began()

        def on_end(self, event: object) -> None:
            self.depth -= 1
            if self.depth == 0:
                for _, ended in _watchers:
                    ended()

    events.register("numba:compile", Listener())
