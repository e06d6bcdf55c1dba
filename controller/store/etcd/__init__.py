# SPDX-License-Identifier: Apache-2.0
"""What several controllers share in etcd: the key of the one that leads, and the durable state."""
