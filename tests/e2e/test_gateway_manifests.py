"""The manifests and pages for Envoy Gateway and Envoy AI Gateway, held to each other."""

import json
import re
from typing import Any

import pytest
import yaml

from tests.e2e.image import ROOT, environment, said
from tests.e2e.manifests import AI_GATEWAY, ENVOY_GATEWAY, WORKLOADS, Node, documents, only
from tests.e2e.test_settings_parity import ENVOY_GATEWAY as GIVEN

VERSION = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


def of_values(name: str) -> Node:
    (values,) = documents(ENVOY_GATEWAY / name)
    config: Node = values["config"]["envoyGateway"]
    return config


def deployment(config: Node) -> Node:
    spec: Node = config["provider"]["kubernetes"]["rateLimitDeployment"]
    return spec


def test_both_ways_to_configure_envoy_gateway_say_the_same() -> None:
    """Helm's values, and the ConfigMap."""
    text = only("ConfigMap", ENVOY_GATEWAY / "envoy-gateway.yaml")["data"]["envoy-gateway.yaml"]
    config = yaml.safe_load(text)
    assert (config.pop("apiVersion"), config.pop("kind")) == (
        "gateway.envoyproxy.io/v1alpha1",
        "EnvoyGateway",
    )
    assert config == of_values("values.yaml")


@pytest.mark.parametrize("name", ["values.yaml", "values-dynamodb.yaml"])
def test_the_image_is_swapped_and_redis_is_only_named(name: str) -> None:
    """Envoy Gateway refuses a configuration without a Redis."""
    config = of_values(name)
    assert VERSION is not None
    assert deployment(config)["container"]["image"] == f"penstock:{VERSION[1]}"
    assert config["rateLimit"]["backend"]["type"] == "Redis"
    assert re.fullmatch(r"[\w-]+:\d+", config["rateLimit"]["backend"]["redis"]["url"])


def test_a_file_has_one_replica_and_a_volume() -> None:
    """Where the image keeps it; several replicas share a table."""
    one = deployment(of_values("values.yaml"))
    (mount,) = one["container"]["volumeMounts"]
    assert one["replicas"] == 1
    assert mount["mountPath"] == said()["VOLUME"]
    assert environment()["PENSTOCK_STORE"].startswith(f"sqlite:///{mount['mountPath']}/")
    assert [volume["name"] for volume in one["pod"]["volumes"]] == [mount["name"]]
    # A persistent volume belongs to root, unless the pod's group is set.
    assert said()["USER"].endswith(f":{one['pod']['securityContext']['fsGroup']}")
    several = deployment(of_values("values-dynamodb.yaml"))
    env = {variable["name"]: variable.get("value", "") for variable in several["container"]["env"]}
    assert several["replicas"] > 1
    assert env["PENSTOCK_STORE"].startswith("dynamodb://")


def test_the_example_limits_its_route() -> None:
    """As often as the page shows it."""
    route = only("HTTPRoute", ENVOY_GATEWAY / "example.yaml")
    policy = only("BackendTrafficPolicy", ENVOY_GATEWAY / "example.yaml")["spec"]
    (target,) = policy["targetRefs"]
    assert (target["kind"], target["name"]) == ("HTTPRoute", route["metadata"]["name"])
    (rule,) = policy["rateLimit"]["global"]["rules"]
    page = (ENVOY_GATEWAY / "README.md").read_text()
    assert page.count("HTTP/1.1 200 OK") == rule["limit"]["requests"]
    assert f"Host: {route['spec']['hostnames'][0]}" in page


def test_the_page_has_every_variable_of_envoy_gateway() -> None:
    """Or its beginning, so that nobody wonders."""
    page = (ENVOY_GATEWAY / "README.md").read_text()
    told = re.findall(r"`([A-Z][A-Z_]+\*?)[=`]", page)
    untold = {"LOG_LEVEL", "USE_STATSD"} | {name for name in GIVEN if name.startswith("RUNTIME_")}
    for name in GIVEN.keys() - untold:
        assert any(re.fullmatch(one.replace("*", ".*"), name) for one in told), name


def test_the_second_instance_is_the_one_that_the_controller_knows() -> None:
    """By node, port, and the name of its Service, in the manifest and in Helm's values."""
    (values,) = documents(AI_GATEWAY / "values.yaml")
    chart: Node = values["rateLimiter"]
    env: dict[str, Any] = {variable["name"]: variable["value"] for variable in chart["env"]}
    workload = WORKLOADS["ai-gateway"]
    service = only("Service", AI_GATEWAY / "ratelimit.yaml")["metadata"]
    name = "envoy-ai-gateway-ratelimit"
    assert (service["name"], service["namespace"]) == (name, "envoy-gateway-system")
    assert chart["name"] == name
    # The chart creates the Service in its own namespace, which is that of the controller.
    controller = workload.env["CONFIG_GRPC_XDS_SERVER_URL"].partition(":")[0]
    own_namespace = controller.partition(".")[2]
    assert values["controller"]["quotaRateLimitServiceHost"] == f"{name}.{own_namespace}"
    for variables in (env, workload.env):
        assert variables["CONFIG_GRPC_XDS_NODE_ID"] == name
        assert variables["CONFIG_GRPC_XDS_SERVER_URL"].endswith(":18002")
    assert env.keys() == workload.env.keys()
    assert f"{chart['image']['repository']}:{chart['image']['tag']}" == workload.container["image"]
    assert not workload.settings.config_grpc_xds_server_use_tls


def test_token_limits_ask_with_0_and_charge_the_answer() -> None:
    """What makes a rule metered."""
    policy = only("BackendTrafficPolicy", AI_GATEWAY / "token-limit.yaml")["spec"]
    (rule,) = policy["rateLimit"]["global"]["rules"]
    assert rule["cost"]["request"] == {"from": "Number", "number": 0}
    assert rule["cost"]["response"]["metadata"]["namespace"] == "io.envoy.ai_gateway"


def named(kind: str, *files: str) -> Node:
    return only(kind, *(AI_GATEWAY / file for file in files))


def test_the_objects_of_the_walk_through_find_each_other() -> None:
    """From the Gateway to the model, and from each policy to its target."""
    gateway, route = named("Gateway", "gateway.yaml"), named("AIGatewayRoute", "gateway.yaml")
    backend, endpoint = named("AIServiceBackend", "gateway.yaml"), named("Backend", "gateway.yaml")
    model, service = named("Deployment", "model.yaml"), named("Service", "model.yaml")
    there = {
        (one["apiVersion"].partition("/")[0], one["kind"], one["metadata"]["name"])
        for one in documents(AI_GATEWAY / "gateway.yaml")
    }
    (rule,) = route["spec"]["rules"]
    policies = [
        named("QuotaPolicy", "quota.yaml"),
        named("BackendTrafficPolicy", "token-limit.yaml"),
    ]
    references = [
        *route["spec"]["parentRefs"],
        backend["spec"]["backendRef"],
        *(target for policy in policies for target in policy["spec"]["targetRefs"]),
    ]
    assert {(one["group"], one["kind"], one["name"]) for one in references} <= there
    assert [one["name"] for one in rule["backendRefs"]] == [backend["metadata"]["name"]]
    class_name = named("GatewayClass", "gateway.yaml")["metadata"]["name"]
    assert gateway["spec"]["gatewayClassName"] == class_name
    (address,) = (one["fqdn"] for one in endpoint["spec"]["endpoints"])
    (port,) = service["spec"]["ports"]
    assert address["hostname"].split(".")[:2] == [service["metadata"]["name"], "default"]
    assert address["port"] == port["port"]
    assert service["spec"]["selector"] == model["spec"]["template"]["metadata"]["labels"]
    (header,) = rule["matches"][0]["headers"]
    (quota,) = policies[0]["spec"]["perModelQuotas"]
    assert quota["modelName"] == header["value"]
    (cost,) = route["spec"]["llmRequestCosts"]
    (limit,) = policies[1]["spec"]["rateLimit"]["global"]["rules"]
    assert limit["cost"]["response"]["metadata"]["key"] == cost["metadataKey"]


def test_the_walk_through_shows_what_the_budgets_let_through() -> None:
    """A request passes while its budget is not in debt. Each answer takes the same."""
    page = (AI_GATEWAY / "README.md").read_text()
    config = named("ConfigMap", "model.yaml")["data"]["default.conf"]
    answer = re.search(r"return 200 '(.*)';", config)
    assert answer
    taken = json.loads(answer[1])["usage"]["total_tokens"]
    (limit,) = named("BackendTrafficPolicy", "token-limit.yaml")["spec"]["rateLimit"]["global"][
        "rules"
    ]
    (quota,) = named("QuotaPolicy", "quota.yaml")["spec"]["perModelQuotas"]
    budgets = [limit["limit"]["requests"], quota["quota"]["defaultBucket"]["limit"]]
    shown = [re.findall(r"HTTP/1.1 (\d+)", part) for part in page.split("```console\n")[1:]]
    assert shown == [["200"] * (budget // taken + 1) + ["429"] for budget in budgets]
    loops = re.findall(r"for i in ([\d ]+);", page)
    assert [len(loop.split()) for loop in loops] == [len(codes) for codes in shown]


def test_envoy_gateway_gets_one_set_of_values_from_two_files() -> None:
    """Helm merges maps, and the second file wins where both have a value."""
    own = of_values("values.yaml")
    (values,) = documents(AI_GATEWAY / "envoy-gateway-values.yaml")
    added: Node = values["config"]["envoyGateway"]
    assert own.keys().isdisjoint(added)
    service = added["extensionManager"]["service"]["fqdn"]["hostname"]
    controller = WORKLOADS["ai-gateway"].env["CONFIG_GRPC_XDS_SERVER_URL"].partition(":")[0]
    assert service == f"{controller}.svc.cluster.local"
