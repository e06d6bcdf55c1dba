# SPDX-License-Identifier: Apache-2.0
"""The Mininet fabric: real switches, agents and sockets in network namespaces, in host time."""
