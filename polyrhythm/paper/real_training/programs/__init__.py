# SPDX-License-Identifier: Apache-2.0
"""Training programs, each run as a script in a process of its own."""
