# SPDX-License-Identifier: Apache-2.0
"""The agent protocol and its generated code."""
