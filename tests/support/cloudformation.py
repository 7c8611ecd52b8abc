"""What AWS does with the templates of deploy/aws: CloudFormation resolves, and IAM allows."""

import http.client
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.support.processes import PATIENCE_S

TEMPLATES = Path(__file__).parents[2] / "deploy" / "aws"

REGION = "eu-west-1"
PSEUDO_PARAMETERS = {
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "AWS::URLSuffix": "amazonaws.com",
}
NO_VALUE = object()


class _Loader(yaml.SafeLoader):
    """Reads `!Ref X` and its like as their long forms."""


def _long_form(loader: _Loader, name: str, node: yaml.Node) -> Any:
    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    else:
        assert isinstance(node, yaml.SequenceNode)
        value = loader.construct_sequence(node, deep=True)
    return {name if name in {"Ref", "Condition"} else f"Fn::{name}": value}


_Loader.add_multi_constructor("!", _long_form)


class Template:
    """A template, with values for its parameters beside the defaults."""

    def __init__(self, name: str, **parameters: Any) -> None:
        # The loader is a safe one that knows more tags.
        self.tree: Any = yaml.load((TEMPLATES / name).read_text(), Loader=_Loader)  # noqa: S506
        declared = self.tree["Parameters"]
        assert parameters.keys() <= declared.keys()
        self._values = PSEUDO_PARAMETERS | {name: one["Default"] for name, one in declared.items()}
        self._values |= parameters

    def resources(self) -> dict[str, Any]:
        """Those whose condition holds, by their names in the template."""
        found = self.tree["Resources"].items()
        return {
            name: self._resolve(one)
            for name, one in found
            if "Condition" not in one or self._holds(one["Condition"])
        }

    def properties(self, name: str) -> Any:
        return self.resources()[name]["Properties"]

    def part(self, *path: str) -> Any:
        """A part of the template, by its path. What is around it need not resolve."""
        node = self.tree
        for name in path:
            node = node[name]
        return self._resolve(node)

    def output(self, name: str) -> Any:
        return self._resolve(self.tree["Outputs"][name]["Value"])

    def _resolve(self, node: Any) -> Any:
        if isinstance(node, list):
            return [one for one in map(self._resolve, node) if one is not NO_VALUE]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            ((function, argument),) = node.items()
            if function == "Ref" or function.startswith("Fn::"):
                return self._call(function, argument)
        resolved = {key: self._resolve(value) for key, value in node.items()}
        return {key: value for key, value in resolved.items() if value is not NO_VALUE}

    def _call(self, function: str, argument: Any) -> Any:
        match function:
            case "Ref":
                return self._ref(argument)
            case "Fn::Sub":
                return re.sub(r"\$\{([^}]+)\}", lambda found: self._ref(found[1]), argument)
            case "Fn::If":
                condition, yes, no = argument
                return self._resolve(yes if self._holds(condition) else no)
        raise NotImplementedError(function)

    def _ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return NO_VALUE
        if name in self._values:
            return self._values[name]
        # Of a table this is its name, which is all that the templates need.
        return self.properties(name)["TableName"]

    def _holds(self, condition: Any) -> bool:
        if isinstance(condition, str):
            condition = self.tree["Conditions"][condition]
        ((function, argument),) = condition.items()
        match function:
            case "Condition":
                return self._holds(argument)
            case "Fn::Not":
                return not self._holds(argument[0])
            case "Fn::Or":
                return any(map(self._holds, argument))
            case "Fn::Equals":
                left, right = map(self._resolve, argument)
                return str(left) == str(right)
        raise NotImplementedError(function)


Right = tuple[str, str]
"""An action, and the ARN of what it is done to."""


def rights(policy: Mapping[str, Any]) -> set[Right]:
    """What a policy allows, one by one. Nothing in it may be a pattern."""
    found = set()
    for statement in policy["PolicyDocument"]["Statement"]:
        assert statement["Effect"] == "Allow"
        for action in _listed(statement["Action"]):
            for resource in _listed(statement["Resource"]):
                assert "*" not in action + resource
                found.add((action, resource))
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def needed(operation: str, request: Mapping[str, Any]) -> set[Right]:
    """What IAM asks for before DynamoDB does as it was told."""
    match operation:
        case "TransactWriteItems":
            parts = [part for item in request["TransactItems"] for part in item.items()]
            return {_right(f"{kind}Item", one["TableName"]) for kind, one in parts}
        case "BatchGetItem" | "BatchWriteItem":
            return {_right(operation, table) for table in request["RequestItems"]}
    index = f"/index/{request['IndexName']}" if "IndexName" in request else ""
    return {_right(operation, request["TableName"] + index)}


def _right(action: str, table: str) -> Right:
    account = PSEUDO_PARAMETERS["AWS::AccountId"]
    return f"dynamodb:{action}", f"arn:aws:dynamodb:{REGION}:{account}:table/{table}"


@dataclass
class Gate:
    """The way to DynamoDB for one role: what its policy does not allow is refused."""

    url: str
    allowed: set[Right]
    used: set[Right] = field(default_factory=set)
    refused: set[Right] = field(default_factory=set)

    def admits(self, asked: set[Right]) -> bool:
        self.used |= asked & self.allowed
        self.refused |= asked - self.allowed
        return asked <= self.allowed


@contextmanager
def run_gate(dynamodb_url: str, allowed: set[Right]) -> Iterator[Gate]:
    """Listens on a port of 127.0.0.1 until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Else a body waits 40 ms for the client to confirm the headers before it.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            if gate.admits(needed(operation, json.loads(body))):
                status, answer = self._forward(body)
            else:
                code = "com.amazon.coral.service#AccessDeniedException"
                status, answer = 400, json.dumps({"__type": code, "Message": operation}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def _forward(self, body: bytes) -> tuple[int, bytes]:
            connection = http.client.HTTPConnection(
                urlsplit(dynamodb_url).netloc, timeout=PATIENCE_S
            )
            try:
                connection.request("POST", "/", body, dict(self.headers))
                response = connection.getresponse()
                return response.status, response.read()
            finally:
                connection.close()

        def log_message(self, *_: object) -> None:
            """Standard error is for what fails."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        gate = Gate(f"http://127.0.0.1:{server.server_port}", allowed)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield gate
        finally:
            server.shutdown()
            thread.join()
