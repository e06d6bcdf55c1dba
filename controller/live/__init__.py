# SPDX-License-Identifier: Apache-2.0
"""The state of a live fabric, and what each piece of news makes the controller do; no socket, clock, file."""
