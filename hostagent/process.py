# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm agent`: the agent of one host as a process.

On standard output there is one line when it serves: `{"ready": true, "host": ..., "pinning": ...}`.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from pathlib import Path

from hostagent.config import config_schema, load_config
from hostagent.declared import ConfigError
from hostagent.nic.udp import NicError

DEFAULT_CONFIG = Path("/etc/polyrhythm/agent.toml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm agent`."""
    parser.add_argument(
        "--config", type=Path, default=DEFAULT_CONFIG, metavar="FILE",
        help="the agent's configuration (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "action",
        nargs="*",
        metavar="ACTION",
        help="schema: print the configuration's JSON schema; check: read the configuration and end; "
        "nothing: serve",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; 0 then, 1 after a failure, 2 for bad input."""
    word, *rest = args.action or ["serve"]
    try:
        if word == "schema" and not rest:
            print(json.dumps(config_schema(), indent=2))
            return 0
        if word == "check" and not rest:
            load_config(args.config).addresses()
            return 0
        if word == "serve" and not rest:
            return _serve(args.config)
        raise ConfigError(f"{' '.join(args.action)}: legal are schema and check, or nothing")
    except ConfigError as error:
        print(f"polyrhythm agent: {error}", file=sys.stderr)
        return 2


def _serve(path: Path) -> int:
    config = load_config(path)
    logging.basicConfig(
        stream=sys.stderr,
        level=config.agent.log_level.upper(),
        format="%(levelname)s %(name)s: %(message)s",
    )
    # gRPC is the heaviest import: what is only printed or refused does not wait for it.
    from hostagent.service import Service

    try:
        service = Service(config)
    except (NicError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.loop.stop())
    ready = {"ready": True, "host": config.agent.host, "pinning": service.nic.pinning}
    print(json.dumps(ready), flush=True)
    service.run()
    return 0
