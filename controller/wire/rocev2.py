# SPDX-License-Identifier: Apache-2.0
"""The UDP ports of RoCEv2 (InfiniBand specification, volume 1, annex A17)."""

ROCE_PORT = 4791
"""The destination port, assigned by IANA."""
ROCE_SOURCE_PORTS = range(0xC000, 0x10000)
"""The source ports: the two highest bits are set, the other 14 come from the flow label."""
