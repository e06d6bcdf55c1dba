# SPDX-License-Identifier: Apache-2.0
"""The rotation search compiled by Numba; `controller.interleave.search` is its plain reference."""
