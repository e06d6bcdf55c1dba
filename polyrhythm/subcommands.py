# SPDX-License-Identifier: Apache-2.0
"""Sub-commands of the command line. A sub-command's module is imported only when the user calls it, so that
no command waits for the imports of another."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

Commands = Mapping[str, tuple[str, str]]
"""Name -> (module with add_arguments(parser) and run(args) -> exit code, one line of help)."""


class _CommandParser(argparse.ArgumentParser):
    """The parser of one sub-command. It adds the options when it has something to parse.

    argparse uses this class for nested sub-commands too; their `module` is empty.
    """

    module = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the module's options, then parse."""
        if self.module:
            import_module(self.module).add_arguments(self)
        return super().parse_known_args(args, namespace)


def integer(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an option that takes an integer from `least` to `most` (without limit if None)."""

    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be {least} or more")
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f"must be {most} or less")
        return value

    # argparse names the type in its message: "invalid whole number value".
    parse.__name__ = "whole number"
    return parse


def add_commands(parser: argparse.ArgumentParser, commands: Commands, name: str) -> None:
    """Add `commands` to `parser` as sub-commands. The parsed namespace holds the chosen one as `name`."""
    subparsers = parser.add_subparsers(
        dest=name, metavar=name.upper(), required=True, parser_class=_CommandParser
    )
    for command, (module, text) in commands.items():
        subparsers.add_parser(
            command, help=text, description=text[0].upper() + text[1:] + "."
        ).module = module


def run_command(commands: Commands, name: str, args: argparse.Namespace) -> int:
    """Run the sub-command that `args` holds as `name`. Returns its exit code."""
    # What is imported stays, so the garbage collector would look at more and more, and free nothing:
    # that is a seventh of what the controller's imports take (measured).
    gc.disable()
    try:
        module = import_module(commands[getattr(args, name)][0])
    finally:
        gc.enable()
    code: int = module.run(args)
    return code
