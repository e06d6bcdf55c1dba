# SPDX-License-Identifier: Apache-2.0
"""`python -m polyrhythm`."""

import sys

from polyrhythm.cli import main

if __name__ == "__main__":
    sys.exit(main())
