# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm controller`: the controller of one fabric, which asks the simulator about other policies."""

from __future__ import annotations

import argparse
import sys

from controller.process.start_options import add_arguments, check_options
from controller.wire.log_lines import configure_log
from controller.wire.server_tls import TlsError
from polyrhythm.subcommands import importing
from polyrhythm_files import ConfigError

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM, SIGINT or the end of standard input; returns the exit code."""
    configure_log(args.log_format)
    try:
        start = check_options(args)
    except (ConfigError, TlsError) as error:
        print(f"polyrhythm controller: {error}", file=sys.stderr)
        return 2
    # The web server and Ryu take a second to import. Help and refused options do not wait for them.
    with importing():
        from controller.process import server
        from polyrhythm.what_if import simulated_under

    return server.run(start, simulated_under)
