# SPDX-License-Identifier: Apache-2.0
"""What the controller shows to people and programs: the REST API, the event stream and the page."""

from controller.northbound.api import create_app
from controller.northbound.source import ViewBoard, ViewSource
from controller.northbound.web import AddressError, WebServer, assets_dir, serve

__all__ = ["AddressError", "ViewBoard", "ViewSource", "WebServer", "assets_dir", "create_app", "serve"]
