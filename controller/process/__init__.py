# SPDX-License-Identifier: Apache-2.0
"""The controller as a process: the control loop, its clock, its worker process, and what starts them."""
