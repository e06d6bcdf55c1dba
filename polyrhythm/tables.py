# SPDX-License-Identifier: Apache-2.0
"""Tables that people read, on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from controller.wire.log_lines import printable

_WIDE = 10_000
"""Width in characters where the output is no terminal: a file or a pipe takes each row as one line."""


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Print rows under bold column names; the columns in `right` are aligned to the right.

    On a terminal, cells that do not fit are folded. Elsewhere a row is one line without colours.
    """
    # A tenth of a second that a command with --json does not spend.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        # Names come from others.
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())
