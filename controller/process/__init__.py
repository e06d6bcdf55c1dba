# SPDX-License-Identifier: Apache-2.0
"""The controller as a process: the engine, its clock, the worker process beside it, and what starts them."""
