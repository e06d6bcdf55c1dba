# SPDX-License-Identifier: Apache-2.0
"""The controller as a process: the control loop, its clock, its worker processes, and what starts them."""
