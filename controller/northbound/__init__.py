# SPDX-License-Identifier: Apache-2.0
"""The REST API, the event stream and the page, which show the controller's state.

Nothing is imported here: the command line needs `access_rules`, and not the web framework.
"""
