# SPDX-License-Identifier: Apache-2.0
"""The fixtures of control_rig: a small fabric, and a controller as a real process."""

from control_rig import artefacts, connect, fabric, start_controller, topology

__all__ = ["artefacts", "connect", "fabric", "start_controller", "topology"]
