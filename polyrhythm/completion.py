# SPDX-License-Identifier: Apache-2.0
"""Completion of the command line in bash, zsh and fish, by argcomplete.

The shell calls `polyrhythm` at each Tab, so what it offers is always what this version takes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyrhythm.subcommands import CommandParser

SHELLS = ("bash", "zsh", "fish")
Completer = Callable[..., list[str]]
_POLICY_OPTIONS = frozenset({"--policy", "--policies", "--compare", "--algorithm"})


class CompletionError(ValueError):
    """Completion cannot be printed or installed. The message is one line for the user."""


def add_completion_options(parser: argparse.ArgumentParser) -> None:
    """`--install-completion` and `--show-completion`. Both end the process."""
    for name, text in (
        ("--install-completion", "install completion for your shell"),
        ("--show-completion", "print the completion script of your shell"),
    ):
        parser.add_argument(
            name,
            nargs="?",
            choices=SHELLS,
            action=_Completion,
            metavar="SHELL",
            help=f"{text} ({', '.join(SHELLS)}; default: by $SHELL), and exit",
        )


def is_asked(environment: Mapping[str, str]) -> bool:
    """Whether a shell asks for completions, instead of a user for a command."""
    return "_ARGCOMPLETE" in environment


def complete(parser: CommandParser, environment: Mapping[str, str]) -> None:
    """Answer the shell and end the process."""
    import argcomplete

    # argcomplete looks at the options of a command before it parses with them.
    chosen = parser
    for word in environment.get("COMP_LINE", "").split():
        if word in chosen.commands:
            chosen = chosen.commands[word]
            chosen.add_options()
    for action in chosen._actions:
        if (completer := _completer(action)) is not None:
            action.completer = completer  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _completer(action: argparse.Action) -> Completer | None:
    """What completes the values of an option or positional; None: its choices, or files."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.choices is not None:
        return None
    # The trace of `sim` may be a scenario. Some commands take a file with a scenario, and no name.
    scenarios = "SCENARIO" in metavar or action.option_strings == ["--trace"]
    policies = "POLICY" in metavar or not _POLICY_OPTIONS.isdisjoint(action.option_strings)
    if not policies and (not scenarios or action.type is Path):
        return None
    several = metavar in ("NAMES", "NAME,NAME")

    def offered(prefix: str, **_: Any) -> list[str]:
        from argcomplete.completers import FilesCompleter

        names = [*(_shipped() if scenarios else ()), *(_registered() if policies else ())]
        before, comma, _last = prefix.rpartition(",") if several else ("", "", "")
        files = FilesCompleter()(prefix) if scenarios else []
        return [*(f"{before}{comma}{name}" for name in names), *files]

    return offered


def _shipped() -> list[str]:
    """The names of the scenarios that come with Polyrhythm."""
    return sorted(path.stem for path in (Path(__file__).parent / "scenarios").glob("*.yaml"))


def _registered() -> tuple[str, ...]:
    from controller.planner.registry import registered

    return registered()


def script(shell: str) -> str:
    """What a shell must read so that it completes `polyrhythm`."""
    from argcomplete.shell_integration import shellcode

    code = shellcode(["polyrhythm"], shell=shell).strip()
    if shell == "zsh":
        # The first line is for zsh's own folders of completions; `compdef` is missing in a plain `zsh -f`.
        first, _, rest = code.partition("\n")
        code = f"{first}\n(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}\n{rest}"
    return code + "\n"


def shell_of(environment: Mapping[str, str]) -> str:
    """The user's shell. Raises CompletionError."""
    shell = Path(environment.get("SHELL", "")).name
    if shell not in SHELLS:
        found = f"$SHELL is {shell!r}" if shell else "$SHELL is not set"
        raise CompletionError(f"{found}; legal: --install-completion or --show-completion with {_named()}")
    return shell


def install(shell: str, home: Path, environment: Mapping[str, str]) -> tuple[Path, Path | None]:
    """Write the script into the user's folders, and a line that reads it into the file that the shell starts
    with, unless it is there. Returns both files; fish needs no such line. Raises OSError."""
    if shell == "fish":
        configuration = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
        target, start = configuration / "fish" / "completions" / "polyrhythm.fish", None
    else:
        data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
        target = data / "polyrhythm" / f"completion.{shell}"
        zsh_home = Path(environment.get("ZDOTDIR") or home)
        start = zsh_home / ".zshrc" if shell == "zsh" else home / ".bashrc"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(script(shell), encoding="utf-8")
    if start is not None:
        quoted = "'" + str(target).replace("'", "'\\''") + "'"
        line = f"[ ! -r {quoted} ] || . {quoted}  # completion of polyrhythm\n"
        text = start.read_bytes() if start.exists() else b""
        if line.encode() not in text:
            gap = b"" if not text or text.endswith(b"\n") else b"\n"
            with start.open("ab") as file:
                file.write(gap + line.encode())
    return target, start


class _Completion(argparse.Action):
    """Print or install completion, and end the process. Other options and a command are not needed then."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Carry out the option."""
        try:
            shell = str(values) if values else shell_of(os.environ)
        except CompletionError as error:
            parser.error(str(error))
        if option_string == "--show-completion":
            sys.stdout.write(script(shell))
            parser.exit()
        try:
            target, start = install(shell, Path.home(), os.environ)
        except (OSError, RuntimeError) as error:
            where = getattr(error, "filename", None) or Path("~")
            why = getattr(error, "strerror", None) or error
            parser.exit(1, f"{parser.prog}: {where}: {why}\n")
        print(f"{target}: completion for {shell}" + (f", read by {start}" if start else ""))
        print("It works in every shell that starts from now on.")
        parser.exit()


def _named() -> str:
    return f"{', '.join(SHELLS[:-1])} or {SHELLS[-1]}"
