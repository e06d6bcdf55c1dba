# SPDX-License-Identifier: Apache-2.0
"""The congestion controls of an emulated queue pair, by name."""

from __future__ import annotations

from dataclasses import replace

from controller.wire.senders import DCQCN
from hostagent.nic.congestion import CongestionControl
from hostagent.nic.cubic import Cubic
from hostagent.nic.dcqcn import DcqcnProfile, ReactionPoint
from hostagent.nic.dctcp import Dctcp
from hostagent.nic.reno import Reno

_WINDOWS = {"reno": Reno, "cubic": Cubic, "dctcp": Dctcp}


def congestion_control(
    plain: str, rate_bps: int, profile: DcqcnProfile, increase_timer: float = 1.0
) -> CongestionControl:
    """A new congestion control, `plain` as in controller.wire.senders.PLAIN, on a NIC of `rate_bps`.

    DCQCN's increase timer is `increase_timer` times the profile's; the others have no timer. They restart
    after the profile's idle time.
    """
    if plain == DCQCN:
        timer = max(1, round(increase_timer * profile.increase_timer_ns))
        return ReactionPoint(rate_bps, replace(profile, increase_timer_ns=timer))
    return _WINDOWS[plain](profile.window_packets, profile.idle_ns)
