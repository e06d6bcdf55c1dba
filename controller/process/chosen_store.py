# SPDX-License-Identifier: Apache-2.0
"""Opens the store that the command line names."""

from __future__ import annotations

from pathlib import Path

from controller.process.standby import Leadership
from controller.process.start_options import StartOptions
from controller.store.interface import StateStore, StoreError
from controller.store.sqlite import SqliteStore


def open_store(start: StartOptions, leadership: Leadership | None) -> StateStore | None:
    """The store that the command line names, or that of a leader; None if there is none.

    Raises:
        StoreError: the store cannot be used; the message names the option.
    """
    if leadership is not None:
        return leadership.store
    if not isinstance(start.state, Path):
        return None
    try:
        return SqliteStore(start.state)
    except StoreError as error:
        raise type(error)(f"--state {error}") from None
