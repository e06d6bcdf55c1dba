# SPDX-License-Identifier: Apache-2.0
"""The state of a live fabric: inputs go in one at a time, effects come out. No socket, clock or file."""
