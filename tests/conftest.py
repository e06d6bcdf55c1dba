# SPDX-License-Identifier: Apache-2.0
"""What makes a test run the same on every machine."""

import os

from hypothesis import HealthCheck, settings

# Hypothesis fails an example that takes longer than a deadline, and a test that draws slowly. Both are wall-clock
# times, which depend on the machine.
settings.register_profile("polyrhythm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("polyrhythm")


def pytest_configure() -> None:
    """Servers of the tests listen on loopback addresses, which no web proxy of the machine may hide."""
    for name in ("no_proxy", "NO_PROXY"):
        known = os.environ.get(name, "")
        os.environ[name] = ",".join(filter(None, (known, "localhost,127.0.0.0/8,::1,127.0.0.1")))
