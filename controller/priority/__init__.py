# SPDX-License-Identifier: Apache-2.0
"""Priority: who goes first where jobs contend (CRUX)."""
