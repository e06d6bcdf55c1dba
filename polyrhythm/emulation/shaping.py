# SPDX-License-Identifier: Apache-2.0
"""A port's rate and priorities by HTB, for a switch that has no port scheduler (BMv2). Pure."""

from __future__ import annotations

from collections.abc import Mapping

_TRICKLE_BPS = 8_000
_LEAST_BURST = 3_000
_HIGHEST = 7
_LINK_PROBE = 0x88B5
"""The EtherType of the controller's link probes."""


def htb_commands(
    interface: str, rate_bps: int, queue_of_dscp: Mapping[int, int], queue_packets: int, mtu: int
) -> list[str]:
    """The lines of `tc -batch` that give an interface one rate and a class for each queue.

    Classes may all borrow up to the rate and do so in the order of their queues, 7 first: strict priority
    but for a trickle that HTB must grant each class. DSCPs without a queue go to queue 0, the controller's
    link probes to the highest: behind a full queue they would be late, and the link taken for a dead one.
    There is no marking: HTB knows no ECN.
    """
    burst = max(_LEAST_BURST, 2 * mtu)
    lines = [
        f"qdisc replace dev {interface} root handle 1: htb default 10",
        f"class add dev {interface} parent 1: classid 1:1 htb rate {rate_bps}bit ceil {rate_bps}bit "
        f"burst {burst}b cburst {burst}b quantum {mtu}",
    ]
    trickle = min(_TRICKLE_BPS, max(1, rate_bps // 16))
    for queue in sorted({0, *queue_of_dscp.values()}):
        minor = 10 + queue
        lines += [
            f"class add dev {interface} parent 1:1 classid 1:{minor} htb rate {trickle}bit "
            f"ceil {rate_bps}bit prio {_HIGHEST - queue} burst {mtu}b cburst {burst}b quantum {mtu}",
            f"qdisc add dev {interface} parent 1:{minor} handle {minor}: pfifo limit {queue_packets}",
        ]
    lines.append(
        f"filter add dev {interface} parent 1: protocol {_LINK_PROBE:#06x} u32 match u32 0 0 "
        f"flowid 1:{10 + max({0, *queue_of_dscp.values()})}"
    )
    for dscp, queue in sorted(queue_of_dscp.items()):
        if queue:
            lines.append(
                f"filter add dev {interface} parent 1: protocol ip u32 match ip tos {dscp << 2:#04x} 0xfc "
                f"flowid 1:{10 + queue}"
            )
    return lines
