# SPDX-License-Identifier: Apache-2.0
"""The limits of what others may send or open: one table, shown in SECURITY.md.

Each is chosen: far above what a large cluster needs, and low enough that memory and time stay bounded.
"""

from __future__ import annotations

from typing import Final

# REST and the page.
MAX_REQUEST_BODY_BYTES: Final = 1 << 20
"""The most bytes in the body of a REST request."""
MAX_WEB_REQUESTS: Final = 256
"""The most open REST requests and event streams together."""
MAX_IDLE_S: Final = 10.0
"""The longest that a web connection may wait with its first, or its next, request, in seconds."""
MAX_TOKENS: Final = 1_000
"""The most entries in the file of tokens."""
