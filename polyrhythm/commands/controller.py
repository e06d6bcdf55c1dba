# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm controller`: the controller of one fabric, which asks the simulator about other policies."""

from __future__ import annotations

import argparse

from controller.process import server
from controller.process.server import add_arguments
from polyrhythm.what_if import simulated_under

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM, SIGINT or the end of standard input; returns the exit code."""
    return server.run(args, simulated_under)
