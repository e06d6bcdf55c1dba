# SPDX-License-Identifier: Apache-2.0
"""The REST API, the event stream and the page, which show the controller's state."""

from controller.northbound.api import create_app
from controller.northbound.source import ViewBoard, ViewSource
from controller.northbound.web import AddressError, WebServer, assets_dir, serve

__all__ = ["AddressError", "ViewBoard", "ViewSource", "WebServer", "assets_dir", "create_app", "serve"]
