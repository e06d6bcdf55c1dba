# SPDX-License-Identifier: Apache-2.0
"""What runs `p4/build`: the embedded switch, and the launcher of `simple_switch_grpc`."""

from . import entries
from .failover import PortTable
from .program import P4Program, P4ProgramError, load_program
from .switch import EmbeddedSwitch

__all__ = ["EmbeddedSwitch", "P4Program", "P4ProgramError", "PortTable", "entries", "load_program"]
