# SPDX-License-Identifier: Apache-2.0
"""Sub-commands of the command line. A sub-command's module is imported only when the user calls it, so that
no command waits for the imports of another."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

Commands = Mapping[str, tuple[str, str]]
"""Name -> (module with add_arguments(parser) and run(args) -> exit code, one line of help)."""


@contextmanager
def importing() -> Iterator[None]:
    """Imports in this block run without the garbage collector. What is imported stays, so the collector would
    look at more and more, and free nothing: that is a seventh of the time of the controller's imports
    (measured)."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class CommandParser(argparse.ArgumentParser):
    """The parser of the command line and of each sub-command. It tells a mistake in one line, and adds the
    options of a sub-command when it has something to parse.

    argparse uses this class for nested sub-commands too; their `module` is empty.
    """

    module = ""
    after_dashes = ""
    """Where the module has AFTER_DASHES: the positional that takes all words after `--`."""
    commands: Mapping[str, CommandParser] = {}

    def add_options(self) -> None:
        """Add the module's options, once."""
        if self.module:
            with importing():
                module = import_module(self.module)
            module.add_arguments(self)
            self.after_dashes = getattr(module, "AFTER_DASHES", "")
            self.module = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the module's options, then parse. Words that are left over are told by the command that
        does not take them, not by the command line as a whole."""
        self.add_options()
        words = list(sys.argv[1:] if args is None else args)
        behind: list[str] = []
        if self.after_dashes and "--" in words:
            # argparse fills all positionals where the first stands, and refuses those behind an option.
            behind = words[words.index("--") + 1 :]
            words = words[: words.index("--")]
        found, rest = super().parse_known_args(words, namespace)
        if behind:
            setattr(found, self.after_dashes, [*getattr(found, self.after_dashes), *behind])
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """End the process with one line and exit code 2."""
        from controller.wire.log_lines import printable

        # The words are the user's and may hold line breaks.
        self.exit(2, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")


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


def number(least: float, most: float) -> Callable[[str], float]:
    """The type of an option that takes a number from `least` to `most`."""

    def parse(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be from {least:,g} to {most:,g}")
        return value

    # argparse names the type in its message: "invalid number value".
    parse.__name__ = "number"
    return parse


def unwritable(error: OSError, folder: Path | str | None = None) -> str:
    """The line for a folder of --out that cannot be written. `folder` stands where `error` names no file."""
    return f"--out: {folder or error.filename}: {error.strerror}; legal: a folder that can be written"


def add_commands(parser: CommandParser, commands: Commands, name: str) -> None:
    """Add `commands` to `parser` as sub-commands. The parsed namespace holds the chosen one as `name`."""
    subparsers = parser.add_subparsers(
        dest=name, metavar=name.upper(), required=True, parser_class=CommandParser
    )
    parser.commands = subparsers.choices
    for command, (module, text) in commands.items():
        subparsers.add_parser(
            command, help=text, description=text[0].upper() + text[1:] + "."
        ).module = module


def run_command(commands: Commands, name: str, args: argparse.Namespace) -> int:
    """Run the sub-command that `args` holds as `name`. Returns its exit code."""
    code: int = import_module(commands[getattr(args, name)][0]).run(args)
    return code
