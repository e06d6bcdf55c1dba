# SPDX-License-Identifier: Apache-2.0
"""The fixtures of control_rig and etcd_rig: a small fabric, a controller as a real process, etcd."""

from agent_rig import start_agent
from control_rig import artefacts, connect, fabric, start_controller, topology
from etcd_rig import cluster

__all__ = ["artefacts", "cluster", "connect", "fabric", "start_agent", "start_controller", "topology"]
