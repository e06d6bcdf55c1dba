# SPDX-License-Identifier: Apache-2.0
"""What outlasts a controller: its jobs, plans, port maps and profiles, and the log of events."""
