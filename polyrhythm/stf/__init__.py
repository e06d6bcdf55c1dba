# SPDX-License-Identifier: Apache-2.0
"""p4c's packet tests (Simple Test Framework, STF): the language and its control plane."""
