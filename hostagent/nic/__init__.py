# SPDX-License-Identifier: Apache-2.0
"""NIC drivers: one interface, and the emulated RoCEv2 NIC of the embedded fabric."""
