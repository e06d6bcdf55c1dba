# SPDX-License-Identifier: Apache-2.0
"""The checks of `polyrhythm doctor`: the ten likeliest faults of a deployment."""
