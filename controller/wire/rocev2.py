# SPDX-License-Identifier: Apache-2.0
"""The UDP ports of RoCEv2 (InfiniBand specification, volume 1, annex A17)."""

from random import Random

ROCE_PORT = 4791
"""The destination port, assigned by IANA."""
ROCE_SOURCE_PORTS = range(0xC000, 0x10000)
"""The source ports: the two highest bits are set, the other 14 come from the flow label."""


def drawn_source_port(flow: str, seed: int) -> int:
    """The source port that a flow draws when it goes by ECMP, uniform over all. It depends on the flow's name
    and the seed only. Agents and the simulator draw by it."""
    return Random(f"{seed}/{flow}").randrange(ROCE_SOURCE_PORTS.start, ROCE_SOURCE_PORTS.stop)
