# SPDX-License-Identifier: Apache-2.0
"""The checks of `polyrhythm doctor`: the likeliest faults of a deployment."""
