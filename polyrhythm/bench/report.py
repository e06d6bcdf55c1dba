# SPDX-License-Identifier: Apache-2.0
"""Print what a bench measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def show(report: Mapping[str, Any], as_json: bool) -> None:
    """Print the figures as JSON, or one per line with right-aligned names and six digits."""
    if as_json:
        print(json.dumps(report, indent=2))
        return
    width = max(map(len, report))
    words = {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in report.items()}
    print("\n".join(f"{key:>{width}}: {value}" for key, value in words.items()))
