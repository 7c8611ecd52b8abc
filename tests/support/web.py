"""Asks the HTTP ports of a running server, as probes, scrapers and people do."""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.processes import PATIENCE_S


@dataclass(frozen=True, slots=True)
class Page:
    status: int
    text: str
    headers: Mapping[str, str]


def get(address: str, path: str) -> Page:
    """Over a connection of its own, as a probe does."""
    return _ask(address, "GET", path)


def post(address: str, path: str, body: object) -> Page:
    """A text as it is, and anything else as JSON."""
    return _ask(address, "POST", path, body if isinstance(body, str) else json.dumps(body))


def descriptor(*entries: tuple[str, str]) -> dict[str, Any]:
    return {"entries": [{"key": key, "value": value} for key, value in entries]}


def decide(address: str, domain: str, *entries: tuple[str, str]) -> Page:
    """Ask for one descriptor by /json."""
    return post(address, "/json", {"domain": domain, "descriptors": [descriptor(*entries)]})


def _ask(address: str, method: str, path: str, body: str | None = None) -> Page:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Page(response.status, response.read().decode(), headers)
    finally:
        connection.close()
