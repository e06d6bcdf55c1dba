# SPDX-License-Identifier: Apache-2.0
"""The fabric as a graph: generators, importers and exporters."""
