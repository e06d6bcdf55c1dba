# SPDX-License-Identifier: Apache-2.0
"""Placement: which hosts a job could get. Nothing is decided here: who ranks the candidates decides."""
