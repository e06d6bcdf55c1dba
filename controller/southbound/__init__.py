# SPDX-License-Identifier: Apache-2.0
"""The controller's side of the switches: desired state, differences, P4Runtime and gNMI."""
