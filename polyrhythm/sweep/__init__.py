# SPDX-License-Identifier: Apache-2.0
"""Many simulations at once: each trace on each topology, under each policy and scheduler, with each seed."""
