# SPDX-License-Identifier: Apache-2.0
"""What makes a test run the same on every machine."""

import os


def pytest_configure() -> None:
    """Servers of the tests listen on loopback addresses, which no web proxy of the machine may hide."""
    for name in ("no_proxy", "NO_PROXY"):
        known = os.environ.get(name, "")
        os.environ[name] = ",".join(filter(None, (known, "localhost,127.0.0.0/8,::1,127.0.0.1")))
