# SPDX-License-Identifier: Apache-2.0
"""The fixtures of p4rt_fixtures: served switches, clients, the project's program."""

from p4rt_fixtures import (
    batch_errors,
    bench,
    config,
    connect,
    controller,
    entities_config,
    p4info,
    rig,
    start_rig,
)

__all__ = [
    "batch_errors",
    "bench",
    "config",
    "connect",
    "controller",
    "entities_config",
    "p4info",
    "rig",
    "start_rig",
]
