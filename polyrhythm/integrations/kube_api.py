# SPDX-License-Identifier: Apache-2.0
"""List and watch pods of the Kubernetes API.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes: a list gives the
pods and a resource version, a watch from there gives each change as a line of JSON. A version that is too old
(410) means: list again.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LIST_S = 60.0
_PAGE = 500
WATCH_S = 300
"""How long a watch lasts before the server ends it. Chosen: it finds a connection that died silently."""


class WatchOverError(Exception):
    """The watch cannot go on from its version; the pods must be listed again."""


@dataclass(frozen=True, slots=True)
class KubeApi:
    """Where the API is. `token` and `ca` are files; the token is read for each request, as it is renewed."""

    url: str
    token: Path | None = None
    ca: Path | None = None

    @classmethod
    def in_cluster(cls, environment: Mapping[str, str]) -> KubeApi | None:
        """The API of the cluster in which this process is a pod; None: it is none."""
        host, port = (
            environment.get("KUBERNETES_SERVICE_HOST"),
            environment.get("KUBERNETES_SERVICE_PORT", "443"),
        )
        if not host:
            return None
        return cls(
            f"https://{f'[{host}]' if ':' in host else host}:{port}", _ACCOUNT / "token", _ACCOUNT / "ca.crt"
        )

    def pods(self, selector: str) -> tuple[list[dict[str, Any]], str]:
        """All pods with a label, and the resource version of the list. Raises OSError, ValueError."""
        found: list[dict[str, Any]] = []
        query = {"labelSelector": selector, "limit": str(_PAGE)}
        while True:
            with self._open(query, _LIST_S) as answer:
                page = json.load(answer)
            found += page.get("items") or []
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return found, str(metadata.get("resourceVersion", ""))
            query["continue"] = metadata["continue"]

    def changes(self, selector: str, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """(ADDED, MODIFIED, DELETED or BOOKMARK; the pod) of each change after a version.

        It lasts until the server ends the watch. Raises WatchOverError, OSError, ValueError.
        """
        query = {
            "labelSelector": selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        try:
            answer = self._open(query, WATCH_S + _LIST_S)
        except urllib.error.HTTPError as error:
            if error.code == 410:
                raise WatchOverError from None
            raise
        with answer:
            for line in answer:
                change = json.loads(line)
                if change["type"] == "ERROR":
                    raise WatchOverError(str(change["object"].get("message")))
                yield change["type"], change["object"]

    def _open(self, query: Mapping[str, str], timeout_s: float) -> Any:
        headers = {"Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token.read_text(encoding='utf-8').strip()}"
        context = ssl.create_default_context(cafile=str(self.ca)) if self.ca is not None else None
        request = urllib.request.Request(f"{self.url}/api/v1/pods?{urlencode(query)}", headers=headers)
        return urllib.request.urlopen(request, timeout=timeout_s, context=context)
