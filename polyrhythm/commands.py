# SPDX-License-Identifier: Apache-2.0
"""Words on the command line whose modules are imported only when they are said, so that no command
waits for another's imports."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

Commands = Mapping[str, tuple[str, str]]
"""Word -> (module with add_arguments(parser) and run(args) -> exit code, what it does)."""


class _Command(argparse.ArgumentParser):
    """The parser of one word: its options are added when there is something to parse.

    argparse makes a word's own sub-commands of this class too; those have no `module`.
    """

    module = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the module's options, then parse."""
        if self.module:
            import_module(self.module).add_arguments(self)
        return super().parse_known_args(args, namespace)


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """An option's type: a whole number from `least`, to `most` if given."""

    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be {least} or more")
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f"must be {most} or less")
        return value

    parse.__name__ = "whole number"
    return parse


def add_commands(parser: argparse.ArgumentParser, commands: Commands, name: str) -> None:
    """Let `parser` take one of the words as its argument `name`."""
    words = parser.add_subparsers(dest=name, metavar=name.upper(), required=True, parser_class=_Command)
    for word, (module, text) in commands.items():
        words.add_parser(word, help=text, description=text[0].upper() + text[1:] + ".").module = module


def run_command(commands: Commands, name: str, args: argparse.Namespace) -> int:
    """Run the word that was said for `name`; returns its exit code."""
    code: int = import_module(commands[getattr(args, name)][0]).run(args)
    return code
