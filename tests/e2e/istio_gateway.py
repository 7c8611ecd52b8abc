"""An ingress gateway as Istio would configure it: from a VirtualService, a Service, EnvoyFilters.

Istio itself can't be had here, so this does what it documents, for as much as our manifests use.
All else is refused, so that a manifest can't say what was never tried.
"""

from collections.abc import Iterable
from typing import Any

from tests.support.envoy import RATE_LIMIT_FILTER, EnvoyConfig

Node = dict[str, Any]

HTTP2 = ("grpc", "http2")
"""What a port's name begins with that Istio speaks HTTP/2 to."""


class Gateway(EnvoyConfig):
    """The example's Envoy without its limits, with routes to its app and a cluster for Penstock."""

    def __init__(self, penstock_port: int, virtual_service: Node, service: Node) -> None:
        super().__init__(penstock_port)
        manager = self._connection_manager
        self.filters: list[Node] = [
            item for item in manager["http_filters"] if item["name"] != RATE_LIMIT_FILTER
        ]
        self._host: Node = {
            "name": "*:8080",
            "domains": virtual_service["spec"]["hosts"],
            "routes": list(_routes(virtual_service)),
        }
        manager["http_filters"] = self.filters
        manager["route_config"] = {"virtual_hosts": [self._host]}
        # The example's own cluster stays: its health checks say when Penstock has been found.
        self.tree["static_resources"]["clusters"] += self._clusters(service)

    def apply(self, envoy_filter: Node) -> None:
        """Patch the configuration, in the order of the patches."""
        for patch in envoy_filter["spec"]["configPatches"]:
            match, what = patch["match"], patch["patch"]
            assert match["context"] == "GATEWAY"
            match (patch["applyTo"], what["operation"]):
                case ("HTTP_FILTER", "INSERT_BEFORE"):
                    self._insert(match["listener"]["filterChain"]["filter"], what["value"])
                case ("VIRTUAL_HOST", "MERGE"):
                    assert set(match) == {"context"}
                    _merge(self._host, what["value"])
                case ("HTTP_ROUTE", "MERGE"):
                    self._patch_routes(match["routeConfiguration"], what["value"])
                case other:
                    raise AssertionError(f"nobody has tried {other}")

    def _insert(self, chain: Node, value: Node) -> None:
        network_filters = self.listener("ingress")["filter_chains"][0]["filters"]
        assert chain["name"] in [item["name"] for item in network_filters]
        names = [item["name"] for item in self.filters]
        self.filters.insert(names.index(chain["subFilter"]["name"]), value)

    def _patch_routes(self, where: Node, value: Node) -> None:
        assert set(where) == {"vhost"}
        assert set(where["vhost"]) == {"route"}
        name = where["vhost"]["route"]["name"]
        routes = [route for route in self.routes if route.get("name") == name]
        assert routes, f"no route is called {name}"
        for route in routes:
            _merge(route, value)

    def _clusters(self, service: Node) -> Iterable[Node]:
        """One for each port of a Service, all of which lead to Penstock."""
        metadata, example = service["metadata"], self.cluster("ratelimit")
        host = f"{metadata['name']}.{metadata['namespace']}.svc.cluster.local"
        for port in service["spec"]["ports"]:
            cluster = {key: example[key] for key in ("type", "connect_timeout", "load_assignment")}
            if port.get("appProtocol", port["name"]).startswith(HTTP2):
                options = "typed_extension_protocol_options"
                cluster[options] = example[options]
            yield {"name": f"outbound|{port['port']}||{host}", **cluster}


def _routes(virtual_service: Node) -> Iterable[Node]:
    for http in virtual_service["spec"]["http"]:
        for match in http["match"]:
            ((kind, path),) = match["uri"].items()
            route = {
                "match": {{"exact": "path", "prefix": "prefix"}[kind]: path},
                "route": {"cluster": "app"},
            }
            yield {"name": http["name"], **route} if "name" in http else route


def _merge(message: Node, other: Node) -> None:
    """As protobuf does: fields of messages one by one, lists one behind the other."""
    for name, value in other.items():
        if isinstance(value, dict) and name in message:
            _merge(message[name], value)
        elif isinstance(value, list):
            message[name] = message.get(name, []) + value
        else:
            message[name] = value
