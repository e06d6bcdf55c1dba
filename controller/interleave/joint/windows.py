# SPDX-License-Identifier: Apache-2.0
"""What a bound on the packets in flight does to messages, beyond the share of a link that it gives. Pure."""

from __future__ import annotations

WINDOW_BITS = 40 * 1082 * 8
"""What a flow has in flight at most: 40 packets (`hostagent.nic.dcqcn`) of 1,024 bytes and their headers."""
FEW = 4
"""The windows of so many flows on a link are not full all the time. Chosen: of 2, 3 and 4, the one with which
the evaluator is nearest to packets, under ECMP in 47 scenarios of `polyrhythm paper battery`."""
MOST = 25
"""So many windows fill a queue of 1,024 packets, the longest of the battery's scenarios. A flow that higher
levels stop just before its end waits no longer either."""
_LITTLE = 0.01
"""A message that is longer than a window by less than this part of it has no rest: rates are rounded."""


def rest_wait(bits: float, window: float, rate: float, cap: float) -> float:
    """How much later, in ns, than its `rate` says a flow ends a message of `bits`, if it waits in a full
    queue of the fabric. It has at most `window` bits in flight. `rate`, that at the end, and its highest rate
    `cap` are in bit/ns.

    Where many flows fill the queue with their windows, a message of a little more than one window waits for
    the whole queue twice: its rest may go when the first packets are acknowledged, and then waits as long as
    a whole window would. With longer messages nothing like it is to be seen: the windows of jobs that come
    and go overlap.
    """
    if bits <= (1 + _LITTLE) * window or bits >= 2 * window or rate <= 0:
        return 0.0
    return (2 * window - bits) * max(0.0, min(1 / rate, MOST / cap) - FEW / cap)
