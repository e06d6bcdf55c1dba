# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm kubernetes`: declare and end a Kubernetes cluster's training jobs on a running controller."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from controller.wire.log_lines import configure_log
from polyrhythm.integrations.kube_api import KubeApi
from polyrhythm.integrations.kube_watcher import KubeWatcher
from polyrhythm.rest_client import add_controller_options, call
from polyrhythm_files import ConfigError, read_document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm kubernetes`."""
    parser.add_argument(
        "--api", metavar="URL", help="the Kubernetes API, as of `kubectl proxy` (default: that of this pod)"
    )
    parser.add_argument("--api-token", type=Path, metavar="FILE", help="token for it (default: this pod's)")
    parser.add_argument("--api-ca", type=Path, metavar="FILE", help="authority of its certificate, PEM")
    parser.add_argument(
        "--hosts",
        type=Path,
        metavar="FILE",
        help="YAML, JSON or TOML with the name of each node in the fabric's description, as NODE: HOST "
        "(default: the same names)",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="form of the log's lines (default text)",
    )
    add_controller_options(parser)


def run(args: argparse.Namespace) -> int:
    """Watch until SIGTERM or SIGINT; returns 0 then, and 2 for bad options."""
    try:
        hosts = _hosts(args.hosts)
        api = _api(args)
    except ConfigError as error:
        print(f"polyrhythm kubernetes: {error}", file=sys.stderr)
        return 2
    configure_log(args.log_format)
    watcher = KubeWatcher(api, partial(call, args), hosts)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: watcher.end())
    print('{"ready": true}', flush=True)
    watcher.run()
    return 0


def _api(args: argparse.Namespace) -> KubeApi:
    if args.api is None:
        found = KubeApi.in_cluster(os.environ)
        if found is None:
            raise ConfigError("this process is no pod; legal: --api URL")
        return found
    if not args.api.startswith(("http://", "https://")):
        raise ConfigError(f"--api {args.api}: legal: http://HOST:PORT or https://HOST:PORT")
    for option, path in (("--api-token", args.api_token), ("--api-ca", args.api_ca)):
        if path is not None and not os.access(path, os.R_OK):
            raise ConfigError(f"{option} {path}: cannot be read; legal: a file")
    return KubeApi(args.api.rstrip("/"), args.api_token, args.api_ca)


def _hosts(path: Path | None) -> Mapping[str, str]:
    if path is None:
        return {}
    document = read_document(path)
    names = document.value
    if not isinstance(names, dict):
        raise document.error((), "no table; legal: NODE: HOST for each node")
    wrong = next((node for node, host in names.items() if not isinstance(host, str) or not host), None)
    if wrong is not None:
        raise document.error((wrong,), "no name; legal: the host's name in the fabric's description")
    return names
