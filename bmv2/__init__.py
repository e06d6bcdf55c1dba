# SPDX-License-Identifier: Apache-2.0
"""The embedded P4 switch, and the launcher of `simple_switch_grpc`. Both run the programs in `p4/build`."""

from . import entries
from .failover import PortTable
from .program import P4Program, P4ProgramError, load_program
from .switch import EmbeddedSwitch

__all__ = ["EmbeddedSwitch", "P4Program", "P4ProgramError", "PortTable", "entries", "load_program"]
