# SPDX-License-Identifier: Apache-2.0
"""State that outlives the controller's process."""
