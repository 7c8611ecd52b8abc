"""The layers: who may import whom. Read from the source, so that nothing needs to run."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SERVER = Path(__file__).parents[2] / "server"

PURE = frozenset(
    {
        "__future__", "abc", "bisect", "collections", "dataclasses", "datetime", "enum",
        "fractions", "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "re",
        "string", "types", "typing", "zoneinfo",
    }
)  # fmt: skip
"""What the core may have of the standard library: nothing that reads a clock, waits, or logs."""

ALLOWED = {
    "penstock.core": {"penstock.core"},
    "penstock.errors": set(),
    "penstock.slices": set(),
    # At the bottom, as errors are: every room but the core counts and traces what it does.
    "penstock.telemetry": {
        "penstock", "penstock.telemetry", "penstock.errors", "penstock.core.foreign_text",
        "penstock.slices",
    },
    "penstock.service": {
        "penstock.service", "penstock.core", "penstock.errors", "penstock.store.port",
        "penstock.store.policy_port", "penstock.store.retention_port", "penstock.telemetry",
        "penstock.slices", "penstock.insight",
    },
    # Who is limited now: pure, and below the service, which feeds it.
    "penstock.insight": {"penstock.insight", "penstock.core", "penstock.slices"},
    # Asks the stores and the counts, and knows nothing of HTTP.
    "penstock.console": {
        "penstock", "penstock.console", "penstock.insight", "penstock.core", "penstock.config",
        "penstock.errors", "penstock.slices", "penstock.store.port",
        "penstock.store.policy_port", "penstock.telemetry", "penstock.traffic.hashing",
    },
    # Makes every client of the AWS SDK.
    "penstock.aws_session": {"penstock.errors"},
    "penstock.store": {
        "penstock.store", "penstock.core", "penstock.errors", "penstock.telemetry",
    },
    # Its rooms build on each other: calls to AWS, then items, then all that is made of items.
    "penstock.store.dynamodb.aws": {
        "penstock.store.dynamodb.aws", "penstock.aws_session", "penstock.core.foreign_text",
        "penstock.errors", "penstock.telemetry",
    },
    "penstock.store.dynamodb.items": {
        "penstock.store.dynamodb.items", "penstock.store.dynamodb.aws",
        "penstock.store.stored_windows", "penstock.core", "penstock.telemetry",
    },
    "penstock.store.dynamodb.buckets": {
        "penstock.store.dynamodb.buckets", "penstock.store.dynamodb.items",
        "penstock.store.dynamodb.aws", "penstock.store.owed", "penstock.store.spans",
        "penstock.core", "penstock.errors", "penstock.telemetry",
    },
    "penstock.store.dynamodb.policy": {
        "penstock.store.dynamodb.policy", "penstock.store.dynamodb.items",
        "penstock.store.dynamodb.aws", "penstock.store.policy_laws", "penstock.store.policy_port",
        "penstock.store.stored_windows", "penstock.core",
    },
    "penstock.store.dynamodb.usage": {
        "penstock.store.dynamodb.usage", "penstock.store.dynamodb.table",
        "penstock.store.dynamodb.policy.listings", "penstock.store.dynamodb.policy.records",
        "penstock.store.dynamodb.items", "penstock.store.dynamodb.aws",
        "penstock.store.policy_port", "penstock.store.retention_port", "penstock.core",
        "penstock.errors", "penstock.telemetry",
    },
    "penstock.store.dynamodb.table": {
        "penstock.store.dynamodb.table", "penstock.store.dynamodb.items",
        "penstock.store.dynamodb.aws", "penstock.core", "penstock.errors",
    },
    "penstock.store.dynamodb.migration": {
        "penstock.store.dynamodb.migration", "penstock.store.dynamodb.buckets.terms",
        "penstock.store.dynamodb.items", "penstock.store.dynamodb.policy.listings",
        "penstock.store.dynamodb.table.schema", "penstock.store.dynamodb.aws", "penstock.core",
        "penstock.errors", "penstock.store.migration_port", "penstock.telemetry",
    },
    "penstock.archive": {
        "penstock.archive", "penstock.aws_session", "penstock.core", "penstock.errors",
        "penstock.store.policy_port", "penstock.store.retention_port",
    },
    # Requests on file. It asks the service, as a transport does.
    "penstock.traffic": {
        "penstock.traffic", "penstock.service", "penstock.core", "penstock.errors",
        "penstock.store.port", "penstock.store.policy_port", "penstock.store.memory",
        "penstock.telemetry", "penstock.slices", "penstock.processes",
    },
    "penstock.transport": {
        "penstock.transport", "penstock.service", "penstock.core", "penstock.errors",
        "penstock.telemetry", "penstock._proto",
    },
    # HTTP/2 without I/O: it could be a package of its own.
    "penstock.transport.http2": {"penstock.transport.http2"},
    "penstock.config": {
        "penstock.config", "penstock.core", "penstock.errors", "penstock.slices",
        "penstock.processes",
    },
    # The client of an xDS server: the stream, what is on the wire, and the reader of rules.
    "penstock.xds": {
        "penstock.xds", "penstock.transport.ads", "penstock.transport.codec", "penstock.config",
        "penstock.core.rule_counting", "penstock.core.foreign_text", "penstock.slices",
        "penstock.telemetry",
    },
    "penstock.build": {
        "penstock", "penstock.traffic", "penstock.transport", "penstock.service",
        "penstock.config", "penstock.core", "penstock.errors", "penstock.telemetry",
        "penstock.xds",
    },
    "penstock.feeds": {
        "penstock.build", "penstock.config", "penstock.core.foreign_text", "penstock.slices",
        "penstock.telemetry", "penstock.xds",
    },
    "penstock.supervise": {"penstock.errors", "penstock.telemetry"},
    "penstock.memory": set(),
    "penstock.answering": {
        "penstock.archive",
        "penstock.build", "penstock.transport", "penstock.service", "penstock.store",
        "penstock.config", "penstock.core", "penstock.errors", "penstock.telemetry",
        "penstock.traffic",
        "penstock.supervise", "penstock.memory", "penstock.garbage", "penstock.old_rules",
        "penstock.slices", "penstock.feeds", "penstock.insight", "penstock.console",
    },
    "penstock.garbage": set(),
    "penstock.old_rules": {"penstock.core", "penstock.slices"},
    "penstock.front": {
        "penstock", "penstock.build", "penstock.transport", "penstock.config", "penstock.telemetry",
        "penstock.supervise", "penstock.slices", "penstock.console", "penstock.insight",
    },
    "penstock.workers": {
        "penstock", "penstock.workers", "penstock.answering", "penstock.build",
        "penstock.transport",
        "penstock.config", "penstock.core.usage", "penstock.errors", "penstock.telemetry",
        "penstock.supervise", "penstock.event_loop", "penstock.slices", "penstock.feeds",
        "penstock.xds", "penstock.insight", "penstock.processes",
    },
    # `penstock aggregate`, and the same for AWS Lambda.
    "penstock.aggregating": {
        "penstock.archive", "penstock.config", "penstock.slices", "penstock.store.open",
        "penstock.telemetry", "penstock.transport",
    },
    "penstock.usage_lambda": {
        "penstock.archive", "penstock.config.usage_kept", "penstock.core.usage",
        "penstock.errors", "penstock.store.open", "penstock.store.dynamodb.usage.batches",
    },
    "penstock.event_loop": {"penstock.errors"},
    "penstock.processes": set(),
    "penstock.server": {
        "penstock.answering", "penstock.build", "penstock.config", "penstock.front",
        "penstock.telemetry", "penstock.transport", "penstock.workers",
    },
    "penstock.cli": {
        "penstock", "penstock.cli", "penstock.server", "penstock.aggregating",
        "penstock.config", "penstock.transport",
        "penstock.core", "penstock.errors", "penstock.store.open", "penstock.store.port",
        "penstock.store.policy_port", "penstock.store.retention_port",
        "penstock.store.old_buckets", "penstock.store.migration_port", "penstock.telemetry.logs",
        "penstock.telemetry.metrics", "penstock.service.retention", "penstock.event_loop",
        "penstock.archive", "penstock.traffic", "penstock.store.usage_port",
        "penstock.store.usage_sums",
    },
    "penstock.__main__": {"penstock.cli"},
    # A program that opens a store, or connects to a server, without the rest of the server.
    "penstock.client": {
        "penstock.client", "penstock.service", "penstock.config.rates", "penstock.core",
        "penstock.errors",
    },
    "penstock.client.embedded": {
        "penstock.config.rates", "penstock.errors", "penstock.service", "penstock.store.open",
        "penstock.store.port",
    },
    "penstock.client.remote": {"penstock.transport"},
    "penstock.client.usage": {
        "penstock.core", "penstock.store.open", "penstock.store.port", "penstock.store.usage_sums",
    },
    "penstock": {"penstock.client", "penstock.errors"},
}  # fmt: skip
"""A package, and what it may import of us. The longest name that fits is the one that counts."""

ONLY = {
    "penstock._proto": {"penstock.transport.codec"},
    # A command or a program that works on a store without a server puts its parts together, too.
    "penstock.store.open": {
        "penstock.answering", "penstock.aggregating", "penstock.usage_lambda", "penstock.cli",
        "penstock.client.embedded", "penstock.client.usage",
    },
    # A replay has nothing to keep.
    "penstock.store.memory": {"penstock.store.open", "penstock.traffic.replay"},
    "penstock.store.sqlite": {"penstock.store.sqlite", "penstock.store.open"},
    "penstock.store.dynamodb": {
        "penstock.store.dynamodb", "penstock.store.open", "penstock.usage_lambda",
    },
    "penstock.cli": {"penstock.cli", "penstock.__main__"},
    "google.protobuf": {"penstock.transport", "penstock._proto"},
    "grpc": {"penstock.transport"},
    "hpack": {"penstock.transport.http2"},
    "yaml": {"penstock.config"},
    "sqlite3": {"penstock.store.sqlite"},
    # A client of the SDK that was made elsewhere would not verify TLS.
    "aioboto3": {"penstock.aws_session"},
    "aiobotocore": {"penstock.aws_session"},
    "httptools": {"penstock.store.dynamodb.aws"},
    # The AWS SDK's own, whose errors show through; and the HTTP ports.
    "aiohttp": {
        "penstock.aws_session", "penstock.store.dynamodb.aws", "penstock.archive.s3",
        "penstock.transport",
    },
    "opentelemetry": {
        "penstock.telemetry.otel", "penstock.telemetry.otel_batch",
        "penstock.telemetry.otel_headers", "penstock.telemetry.otel_queue",
        "penstock.telemetry.otel_readable", "penstock.telemetry.otlp",
    },
    # Only where tracing is on: it takes a while to import.
    "penstock.telemetry.otel": {
        "penstock.build", "penstock.telemetry.otel_batch", "penstock.telemetry.otel_queue",
        "penstock.telemetry.otel_readable", "penstock.telemetry.otlp",
    },
    "penstock.telemetry.otlp": {"penstock.build"},
    "botocore": {
        "penstock.aws_session", "penstock.store.dynamodb.aws", "penstock.archive.s3",
    },
}  # fmt: skip
"""Modules that few may import: these and what is below them."""

WITHOUT_AWAIT = {
    "penstock.core": PURE,
    "penstock.insight": PURE,
    "penstock.transport.http2": PURE | {"hpack", "struct"},
}
"""Packages that are pure: they never await, and what they may import besides us."""

GENERATED = "penstock._proto"


@dataclass(frozen=True)
class Module:
    name: str
    source: str
    is_package: bool = False


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def imports_of(module: Module, known: frozenset[str]) -> Iterator[tuple[int, str]]:
    """What a module imports, and where. `from a import b` is `a.b` if that is a module."""
    for node in ast.walk(ast.parse(module.source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.name.split(".")
                above = parts[: len(parts) - node.level + module.is_package]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield node.lineno, full if full in known else base


def breaches(modules: list[Module]) -> list[str]:
    """Everything that breaks a layer, as `module:line: what`."""
    known = frozenset(module.name for module in modules)
    return [
        f"{module.name}:{line}: {what}"
        for module in modules
        if not within(module.name, GENERATED)
        for line, what in [*_import_breaches(module, known), *_await_breaches(module)]
    ]


def _import_breaches(module: Module, known: frozenset[str]) -> Iterator[tuple[int, str]]:
    layer = max((name for name in ALLOWED if within(module.name, name)), key=len)
    for line, imported in imports_of(module, known):
        if within(imported, "penstock"):
            # `penstock` alone holds the version, and does not stand for all below it.
            fitting = (name for name in ALLOWED[layer] if name != "penstock")
            plain = imported == "penstock" and "penstock" in ALLOWED[layer]
            if not plain and not any(within(imported, name) for name in fitting):
                yield line, f"{layer} may not import {imported}"
                continue
        elif layer in WITHOUT_AWAIT and imported.partition(".")[0] not in WITHOUT_AWAIT[layer]:
            yield line, f"{layer} may not import {imported}"
            continue
        for guarded, importers in ONLY.items():
            if within(imported, guarded) and not any(within(module.name, i) for i in importers):
                yield line, f"only {', '.join(sorted(importers))} may import {guarded}"


def _await_breaches(module: Module) -> Iterator[tuple[int, str]]:
    if not any(within(module.name, pure) for pure in WITHOUT_AWAIT):
        return
    waits = ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith
    for node in ast.walk(ast.parse(module.source)):
        if isinstance(node, waits):
            yield node.lineno, f"{module.name} never awaits"
        elif isinstance(node, ast.comprehension) and node.is_async:
            yield node.target.lineno, f"{module.name} never awaits"


def our_modules() -> list[Module]:
    found = []
    for path in sorted((SERVER / "penstock").rglob("*.py")):
        parts = path.relative_to(SERVER).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found.append(Module(name, path.read_text(), is_package))
    return found


def test_no_module_breaks_a_layer() -> None:
    """The whole package keeps to the tables above."""
    assert breaches(our_modules()) == []


def test_the_check_sees_every_module() -> None:
    """A check that finds nothing to check would pass, too."""
    names = {module.name for module in our_modules()}
    assert {"penstock", "penstock.core.bucket", "penstock.server", "penstock.cli"} <= names
    layers = {name.split(".")[1] for name in names if "." in name}
    unknown = {f"penstock.{layer}" for layer in layers} - ALLOWED.keys() - {GENERATED}
    assert unknown == set(), "a new package needs a row in the table"


def test_generated_code_is_reached_from_one_file_only() -> None:
    """And that file does reach it, so the check above means something."""
    modules = our_modules()
    known = frozenset(module.name for module in modules)
    importers = {
        module.name
        for module in modules
        if not within(module.name, GENERATED)
        and any(within(imported, GENERATED) for _, imported in imports_of(module, known))
    }
    assert importers == {"penstock.transport.codec"}


def test_no_package_takes_the_name_of_envoy() -> None:
    """Envoy's own wheel has it, and both may be installed."""
    folders = {path.name for path in SERVER.rglob("*") if path.is_dir()}
    assert "envoy" not in folders
    assert not (SERVER / "envoy.py").exists()


def test_the_page_of_each_room_of_dynamodb_names_its_modules() -> None:
    """The page of each folder names every file of the folder, and no other file."""
    for page in (SERVER / "penstock/store/dynamodb").rglob("*/__init__.py"):
        files = {path.name for path in page.parent.glob("*.py")} - {page.name}
        assert set(re.findall(r"^ *(\w+\.py)  ", page.read_text(), re.MULTILINE)) == files


STAND_INS = [
    Module(name, "", is_package)
    for name, is_package in [
        ("penstock", True), ("penstock.errors", False), ("penstock.core", True),
        ("penstock.core.take", False), ("penstock.service", True),
        ("penstock.service.limiter", False), ("penstock.store", True),
        ("penstock.store.port", False), ("penstock.store.open", False),
        ("penstock.store.memory", False), ("penstock.store.sqlite", True),
        ("penstock.store.dynamodb", True), ("penstock.store.dynamodb.table", False),
        ("penstock.aws_session", False),
        ("penstock.store.dynamodb.aws", True), ("penstock.store.dynamodb.aws.errors", False),
        ("penstock.store.dynamodb.items", True), ("penstock.store.dynamodb.items.keys", False),
        ("penstock.store.dynamodb.buckets", True),
        ("penstock.store.dynamodb.buckets.terms", False), ("penstock.store.policy_port", False),
        ("penstock.config", True), ("penstock.config.rules", False), ("penstock.transport", True),
        ("penstock.transport.codec", False), ("penstock.transport.http2", True),
        ("penstock.transport.http2.y", False), ("penstock.server", False), ("penstock.cli", True),
        ("penstock.workers", True), ("penstock.workers.crew", False),
        ("penstock.telemetry", True), ("penstock.telemetry.otel", False),
        ("penstock.telemetry.metrics", False),
        ("penstock._proto", True), ("penstock._proto.rls_pb2", False),
    ]
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("penstock.core.x", "import asyncio"),
        ("penstock.core.x", "import time"),
        ("penstock.core.x", "from logging import getLogger"),
        ("penstock.core.x", "from google.protobuf import message"),
        ("penstock.core.x", "from penstock.errors import ConfigError"),
        ("penstock.core.x", "from ..service import limiter"),
        ("penstock.core.x", "def f():\n    import os.path"),
        ("penstock.core.x", "async def f(): pass"),
        ("penstock.core.x", "def f(x): return [y async for y in x]"),
        ("penstock.service.x", "from penstock.store.memory import MemoryStore"),
        ("penstock.service.x", "from penstock.store import open"),
        ("penstock.service.x", "import penstock.transport.codec"),
        ("penstock.service.x", "from penstock.config.rules import RulesSource"),
        ("penstock.service.x", "import grpc"),
        ("penstock.store.x", "from penstock.service.limiter import Limiter"),
        ("penstock.store.x", "from penstock.store.sqlite import SqliteStore"),
        ("penstock.store.sqlite.x", "from penstock.store.memory import MemoryStore"),
        ("penstock.store.memory", "from penstock.store.open import open_store"),
        ("penstock.transport.x", "from penstock._proto import rls_pb2"),
        ("penstock.transport.x", "from penstock.store.port import BucketStore"),
        ("penstock.transport.x", "from penstock import config"),
        ("penstock.transport.x", "from hpack import Decoder"),
        ("penstock.transport.http2.x", "from penstock.transport import codec"),
        ("penstock.transport.http2.x", "from penstock.core.take import Take"),
        ("penstock.transport.http2.x", "import asyncio"),
        ("penstock.transport.http2.x", "import time"),
        ("penstock.transport.http2.x", "import logging"),
        ("penstock.transport.http2.x", "async def f(): pass"),
        ("penstock.config.x", "from penstock.transport import codec"),
        ("penstock.config.x", "from penstock.server import serve"),
        ("penstock.cli.x", "from penstock.store.memory import MemoryStore"),
        ("penstock.cli.x", "from penstock.store.dynamodb.table import TableAdmin"),
        ("penstock.cli.x", "from penstock.service.limiter import Limiter"),
        ("penstock.server", "from penstock.cli import main"),
        ("penstock.server", "import sqlite3"),
        ("penstock.front", "from penstock.store.open import open_store"),
        ("penstock.workers.x", "from penstock.store.open import open_store"),
        ("penstock.answering", "from penstock.workers import crew"),
        ("penstock.server", "from botocore.exceptions import ClientError"),
        ("penstock.store.open", "import aioboto3"),
        ("penstock.store.x", "import aiohttp"),
        ("penstock.store.dynamodb.x", "import aioboto3"),
        ("penstock.store.dynamodb.aws.x", "import aioboto3"),
        ("penstock.archive.s3", "from aiobotocore.session import get_session"),
        ("penstock.store.dynamodb.buckets.x", "from botocore.exceptions import ClientError"),
        ("penstock.store.dynamodb.aws.x", "from penstock.store.dynamodb.items import keys"),
        ("penstock.store.dynamodb.items.x", "from penstock.store.dynamodb.buckets import terms"),
        ("penstock.store.dynamodb.policy.x", "from penstock.store.dynamodb.buckets import terms"),
        ("penstock.store.dynamodb.buckets.x", "from penstock.store.policy_port import Change"),
        ("penstock.store.sqlite.x", "from penstock.store.dynamodb import table"),
        ("penstock.service.x", "from penstock.store.dynamodb import table"),
        ("penstock.errors", "from penstock.core import take"),
        ("penstock.core.x", "from penstock.telemetry import metrics"),
        ("penstock.telemetry.x", "from penstock.core import take"),
        ("penstock.telemetry.x", "from opentelemetry import trace"),
        ("penstock.store.x", "from penstock.telemetry import otel"),
        ("penstock.config.x", "from penstock.telemetry import metrics"),
        ("penstock.xds.x", "import grpc"),
        ("penstock.xds.x", "from penstock.transport.rls import RateLimitService"),
        ("penstock.xds.x", "from penstock.service.limiter import Limiter"),
        ("penstock.config.x", "from penstock.xds import client"),
        ("penstock.transport.x", "from penstock.xds import client"),
    ],
)
def test_the_check_finds_a_breach(name: str, source: str) -> None:
    """Each of these breaks a layer, and the line is told."""
    found = breaches([*STAND_INS, Module(name, f"\n{source}\n")])
    assert len(found) == 1
    line = 1 + len(source.splitlines())
    assert found[0].startswith(f"{name}:{line}: ")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("penstock.core.x", "from collections.abc import Iterable\nfrom . import take"),
        ("penstock.service.x", "import asyncio\nfrom penstock.store.port import BucketStore"),
        ("penstock.store.open", "from penstock.store.memory import MemoryStore"),
        ("penstock.transport.codec", "from penstock._proto import rls_pb2"),
        ("penstock.front", "from penstock import __version__"),
        ("penstock.answering", "from penstock.store import open"),
        ("penstock.server", "from penstock.workers import crew"),
        ("penstock.transport.http2.x", "from hpack import Decoder\nfrom . import y"),
        ("penstock.transport.native.x", "from penstock.transport.http2 import Connection"),
        ("penstock.cli.x", "from penstock.server import serve\nasync def f(): pass"),
        ("penstock.cli.x", "from penstock.store.open import open_table"),
        ("penstock.cli.x", "from penstock.store.port import BucketStore"),
        ("penstock.store.open", "def f():\n    from penstock.store.dynamodb import table"),
        ("penstock.store.dynamodb.aws.x", "import aiohttp\nfrom botocore import config"),
        ("penstock.aws_session", "import aioboto3, aiobotocore"),
        ("penstock.store.dynamodb.buckets.x", "from penstock.store.dynamodb.aws import errors"),
        ("penstock.__main__", "from penstock.cli import main"),
        ("penstock.store.x", "from penstock.telemetry import metrics"),
        ("penstock.telemetry.otel", "from opentelemetry.sdk import trace"),
        ("penstock._proto.x_pb2", "from google.protobuf import descriptor"),
        ("penstock.xds.x", "from penstock.transport import codec\nasync def f(): pass"),
        ("penstock.xds.x", "from penstock.config.read_apart import unpack"),
    ],
)
def test_the_check_lets_the_rest_pass(name: str, source: str) -> None:
    """What the layers allow is no breach."""
    assert breaches([*STAND_INS, Module(name, source)]) == []
