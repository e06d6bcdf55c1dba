# SPDX-License-Identifier: Apache-2.0
"""The routing algorithms behind one interface: fabric, demand and options in, a choice per flow out."""

from controller.routing.algorithms.base import ORDERS, Options, congestion
from controller.routing.algorithms.dispatch import auto, solve

__all__ = ["ORDERS", "Options", "auto", "congestion", "solve"]
