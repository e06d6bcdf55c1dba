# SPDX-License-Identifier: Apache-2.0
"""What outlives the process."""
