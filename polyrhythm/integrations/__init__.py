# SPDX-License-Identifier: Apache-2.0
"""Schedulers of clusters: their jobs as the controller's REST API takes them."""
