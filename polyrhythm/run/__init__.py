# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm run`: scenarios measured under ECMP and under Polyrhythm, and shown live."""
