# SPDX-License-Identifier: Apache-2.0
"""A served switch and its primary client, for the tests of `polyrhythm shell`."""

from p4rt_fixtures import config, connect, controller, p4info, rig, start_rig

__all__ = ["config", "connect", "controller", "p4info", "rig", "start_rig"]
