# SPDX-License-Identifier: Apache-2.0
"""The fixtures of this folder; they live in a module of a name of its own, so that tests can import it."""

from control_rig import artefacts, connect, fabric, start_controller, topology

__all__ = ["artefacts", "connect", "fabric", "start_controller", "topology"]
