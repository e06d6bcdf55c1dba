# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm run`: measure scenarios under plain ECMP and under a policy, and show them live."""
