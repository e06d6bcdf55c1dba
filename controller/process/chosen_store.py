# SPDX-License-Identifier: Apache-2.0
"""Opens the store that the command line names."""

from __future__ import annotations

from controller.process.start_options import StartOptions
from controller.store.interface import StateStore, StoreError
from controller.store.sqlite import SqliteStore


def open_store(start: StartOptions) -> StateStore | None:
    """The store that the command line names; None if it names none.

    Raises:
        StoreError: the store cannot be used; the message names the option.
    """
    if start.state is None:
        return None
    try:
        return SqliteStore(start.state)
    except StoreError as error:
        raise type(error)(f"--state {error}") from None
