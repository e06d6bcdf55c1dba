# SPDX-License-Identifier: Apache-2.0
"""The compiled verbs shim, for the tests of the shim and of the verbs driver."""

from shim_rig import built

__all__ = ["built"]
