# SPDX-License-Identifier: Apache-2.0
"""The controller: it decides where flows go, who goes first and when jobs talk, and has it done."""
