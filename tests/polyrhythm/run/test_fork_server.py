# SPDX-License-Identifier: Apache-2.0
"""What the fork server imports once, so that no child imports it again."""

import subprocess
import sys

CODE = """
import sys
from argparse import Namespace
from importlib import import_module

from polyrhythm.run.fork_server import PRELOADED

for name in PRELOADED:
    import_module(name)
before = set(sys.modules)
from polyrhythm.commands import controller

controller.check_options = lambda args: None
sys.modules["controller.process.server"].run = lambda start, simulate: 0
assert controller.run(Namespace(log_format="text")) == 0
print(*(sys.modules.keys() - before))
"""


def test_a_controller_imports_nothing_before_it_serves() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
