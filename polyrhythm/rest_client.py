# SPDX-License-Identifier: Apache-2.0
"""Calls of a running controller's REST API, for commands."""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from controller.wire.log_lines import printable
from polyrhythm.progress import working
from polyrhythm.subcommands import integer

# Chosen, in seconds: a plan of a large fabric takes some of them.
TIMEOUT_S = 120.0
# Chosen, in seconds: how often a command that waits asks again.
_LOOK_S = 0.1


class CallError(Exception):
    """A call failed. The message is one line for the user; `code` is the exit code, `status` that of the
    controller's answer (0: there was none). `faults`: the places of the request's body that are wrong, each
    with what is wrong there, where the controller names them."""

    def __init__(
        self, code: int, why: str, status: int = 0, faults: Sequence[tuple[tuple[str | int, ...], str]] = ()
    ) -> None:
        super().__init__(why)
        self.code = code
        self.status = status
        self.faults = tuple(faults)


def add_controller_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which controller is called."""
    parser.add_argument(
        "--controller",
        default="http://127.0.0.1:8080",
        metavar="URL",
        help="where the controller serves its REST API (default %(default)s)",
    )
    parser.add_argument(
        "--token", type=Path, metavar="FILE", help="file with a token, where the controller asks for one"
    )


def add_wait(parser: argparse.ArgumentParser, default: int, what: str) -> None:
    """`--wait`: how long `call_until` waits, which is for `what`."""
    parser.add_argument(
        "--wait",
        type=integer(0, 3600),
        default=default,
        metavar="S",
        help=f"seconds to wait {what} (default %(default)s; 0: do not wait)",
    )


def call_until(args: argparse.Namespace, path: str, late: Callable[[Any], str]) -> Any:
    """The answer of `path` as soon as `late` has nothing to say of it. With `--wait 0` the first one.

    Raises:
        CallError: as `call`; or `--wait` seconds are over, with what `late` says (code 1).
    """
    deadline = time.monotonic() + args.wait
    with working("waiting for the controller"):
        while (why := late(found := _asked(args, path, None, "GET"))) and args.wait:
            if time.monotonic() > deadline:
                raise CallError(1, why)
            time.sleep(_LOOK_S)
    return found


def call(args: argparse.Namespace, path: str, body: object = None, *, method: str = "GET") -> Any:
    """The JSON answer of a request for `path` under /api/v1; None if it has none.

    Raises:
        CallError: the controller refuses (code 2), or cannot be reached (code 1).
    """
    with working("waiting for the controller"):
        return _asked(args, path, body, method)


def call_pages(args: argparse.Namespace, path: str) -> Any:
    """The JSON answer of a list with all its pages. Raises CallError as `call`."""
    return all_pages(partial(call, args), path)


def all_pages(get: Callable[[str], Any], path: str) -> Any:
    """The answer of `path` with the items of all its pages. `get` answers a path.

    A plan that is replaced meanwhile is read again from its first page.
    """
    whole = page = get(path)
    while page is not None and (cursor := page.get("next")) is not None:
        page = get(f"{path}{'&' if '?' in path else '?'}cursor={quote(cursor, safe='')}")
        if page is None or page.get("version") != whole.get("version"):
            whole = page = get(path)
            continue
        lists = {name: whole[name] + value for name, value in page.items() if isinstance(value, list)}
        whole = {**whole, **lists, "next": None}
    return whole


def _asked(args: argparse.Namespace, path: str, body: object, method: str) -> Any:
    headers = {"Content-Type": "application/json"}
    if args.token is not None:
        try:
            headers["Authorization"] = f"Bearer {args.token.read_text(encoding='utf-8').strip()}"
        except (OSError, ValueError) as error:
            raise CallError(2, f"--token {args.token}: {getattr(error, 'strerror', error)}") from None
    if not _is_address(args.controller):
        raise CallError(2, f"--controller {args.controller}: legal: http://HOST:PORT or https://HOST:PORT")
    url = f"{args.controller.rstrip('/')}/api/v1/{path}"
    data = json.dumps(body).encode() if body is not None else None
    try:
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            found = None if answer.status == 204 else json.load(answer)
    except urllib.error.HTTPError as error:
        raise _refusal(error) from None
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        why = getattr(reason, "strerror", None) or reason
        raise CallError(1, f"{url}: {why}; --controller says where the controller is") from None
    except (ValueError, http.client.HTTPException) as error:
        words = str(error) or type(error).__name__
        raise CallError(1, f"{url}: no answer of a controller: {printable(words)}") from None
    if found is not None and not isinstance(found, dict):
        raise CallError(1, f"{url}: no answer of a controller: it is no JSON object")
    return found


def _is_address(text: str) -> bool:
    """Whether `text` is an address of HTTP with a host, and with a legal port if it has one."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https") and bool(parts.hostname) and text.isprintable() and " " not in text
    )


def reported(command: str, work: Callable[[], None]) -> int:
    """Run `work`; a CallError becomes one line and the exit code."""
    try:
        work()
    except CallError as error:
        print(f"polyrhythm {command}: {printable(str(error))}", file=sys.stderr)
        return error.code
    return 0


def _refusal(error: urllib.error.HTTPError) -> CallError:
    try:
        problem = json.load(error)
        detail = problem["detail"]
    except (ValueError, KeyError, TypeError):
        problem, detail = {}, error.reason
    why = f"the controller answers {error.code}: {detail}"
    return CallError(2 if error.code < 500 else 1, why, error.code, _faults(problem))


def _faults(problem: Any) -> list[tuple[tuple[str | int, ...], str]]:
    """The places of a problem document that lie in the request's body."""
    found = problem.get("faults") if isinstance(problem, dict) else None
    try:
        named = [(str(f["where"]).split("."), str(f["what"])) for f in found or ()]
    except (TypeError, KeyError):
        return []
    return [
        (tuple(int(part) if part.isdigit() else part for part in parts[1:]), what)
        for parts, what in named
        if parts[0] == "body"
    ]
