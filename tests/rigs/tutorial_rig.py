# SPDX-License-Identifier: Apache-2.0
"""A small fabric in the topology format of the P4 tutorials."""

from __future__ import annotations

from typing import Any

POD: dict[str, Any] = {
    "hosts": {
        "h1": {"ip": "10.0.1.1/24", "mac": "08:00:00:00:01:11", "commands": ["route add default gw 10.0.1.10"]},
        "h2": {"ip": "10.0.2.2/24", "mac": "08:00:00:00:02:22"},
        "h3": {"ip": "10.0.3.3/24", "mac": "08:00:00:00:03:33"},
        "h4": {},
    },
    "switches": {"s1": {"runtime_json": "s1-runtime.json"}, "s2": {}, "s3": {}, "s4": {}},
    "links": [
        ["h1", "s1-p1"], ["h2", "s1-p2"], ["s1-p3", "s3-p1"], ["s1-p4", "s4-p2", "0", 0.5],
        ["s2-p1", "h3"], ["h4", "s2-p2"], ["s2-p3", "s4-p1"], ["s2-p4", "s3-p2"],
    ],
}  # fmt: skip
