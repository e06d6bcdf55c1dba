# SPDX-License-Identifier: Apache-2.0
"""What the tests of the store share."""

from etcd_rig import cluster

__all__ = ["cluster"]
