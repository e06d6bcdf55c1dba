# SPDX-License-Identifier: Apache-2.0
"""finsy, the client that the controller uses, against our server."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_whole_session(rig):
    rig.wires[1] = 2
    done = subprocess.run(
        [
            sys.executable,
            Path(__file__).parents[2] / "rigs" / "finsy_session.py",
            rig.server.address,
            ROOT / "p4/build/polyrhythm.v1model.p4info.txtpb",
            ROOT / "p4/build/polyrhythm.v1model.json",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen == {
        "primary": True,
        "version": "1.5.0",
        "ports": {"1": [1, True], "2": [2, True]},
        "error": {"0": "ALREADY_EXISTS"},
        "entries": ["next_hop", "routing"],
        "cells": 4096,
        "packet": [2, 2, True],
        "left": 0,
    }
