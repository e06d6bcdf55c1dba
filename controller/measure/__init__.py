# SPDX-License-Identifier: Apache-2.0
"""What a job does, measured: profiles from byte counts, change detection, and whose turn it is."""
