# SPDX-License-Identifier: Apache-2.0
"""The loop of time and space: a search over whole plans, evaluated by `controller.interleave.joint`."""
