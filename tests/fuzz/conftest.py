# SPDX-License-Identifier: Apache-2.0
"""The fuzz tests use the frames of the differential tests and the clients of the P4Runtime tests."""

import sys
from pathlib import Path

for room in ("differential", "p4runtime"):
    folder = str(Path(__file__).parents[1] / room)
    if folder not in sys.path:
        sys.path.append(folder)
