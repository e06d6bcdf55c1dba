# SPDX-License-Identifier: Apache-2.0
"""The rate and the priorities of a port by Linux HTB, for a switch without a port scheduler (BMv2). Pure."""

from __future__ import annotations

from collections.abc import Mapping

# HTB must guarantee each class a rate; this one is small. Chosen.
_GUARANTEED_BPS = 8_000
# Bytes: two frames of 1,500, so that HTB can send a frame at once.
_LEAST_BURST = 3_000
_HIGHEST = 7
_LINK_PROBE = 0x88B5
"""The EtherType of the controller's link probes."""


def htb_commands(
    interface: str, rate_bps: int, queue_of_dscp: Mapping[int, int], queue_packets: int, mtu: int
) -> list[str]:
    """The lines for `tc -batch` that give an interface one rate and a class for each queue.

    Every class may borrow up to the port's rate, in the order of the queues, 7 first. That is strict
    priority, except for the small rate that HTB must guarantee to each class. A DSCP without a queue goes to
    queue 0. The controller's link probes go to the highest queue: behind a full queue they would be late, and
    the controller would take the link for dead. HTB marks no ECN.

    `rate_bps` is in bit/s, `queue_packets` the depth of each queue, `mtu` the frame size in bytes.
    """
    burst = max(_LEAST_BURST, 2 * mtu)
    lines = [
        f"qdisc replace dev {interface} root handle 1: htb default 10",
        f"class add dev {interface} parent 1: classid 1:1 htb rate {rate_bps}bit ceil {rate_bps}bit "
        f"burst {burst}b cburst {burst}b quantum {mtu}",
    ]
    guaranteed = min(_GUARANTEED_BPS, max(1, rate_bps // 16))
    for queue in sorted({0, *queue_of_dscp.values()}):
        minor = 10 + queue
        lines += [
            f"class add dev {interface} parent 1:1 classid 1:{minor} htb rate {guaranteed}bit "
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
