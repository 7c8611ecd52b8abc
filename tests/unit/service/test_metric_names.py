"""The names that rules are counted under: what the reference server's own tests expect."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from penstock.config.rules import RulesSource
from penstock.core.request import Descriptor, Request
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.memory import MemoryStore
from penstock.telemetry.hits import HitsFamily
from penstock.telemetry.metrics import Metrics

from tests.support.metrics import read, sample

NOW = 1_794_792_780_000

BASIC = """
domain: test-domain
descriptors:
  - key: key1
    value: value1
    descriptors:
      - {key: subkey1, rate_limit: {unit: second, requests_per_unit: 5}}
      - {key: subkey1, value: subvalue1, rate_limit: {unit: second, requests_per_unit: 10}}
  - {key: key2, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: key2, value: value2, rate_limit: {unit: minute, requests_per_unit: 30}}
  - {key: key4, rate_limit: {name: key4_rate_limit, unit: day, requests_per_unit: 1}}
  - {key: key7, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 70}}
"""
NESTED = """
domain: nested
descriptors:
  - key: key_1
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 500}
  - key: key_1
    value: some-value-for-key-1
    rate_limit: {unit: minute, requests_per_unit: 500}
  - key: key_2
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 5000}
    descriptors:
      - {key: key_3, detailed_metric: true}
      - key: key_3
        value: requested-key3-value
        detailed_metric: true
        rate_limit: {unit: minute, requests_per_unit: 5}
  - key: key-1
    rate_limit: {unit: minute, requests_per_unit: 100}
    descriptors:
      - {key: key-2, rate_limit: {unit: minute, requests_per_unit: 5}}
"""
SHOWN = """
domain: domain
descriptors:
  - key: route
    value_to_metric: true
    descriptors:
      - key: http_method
        value_to_metric: true
        descriptors:
          - {key: subject_id, rate_limit: {unit: minute, requests_per_unit: 60}}
          - key: detailed
            detailed_metric: true
            rate_limit: {unit: minute, requests_per_unit: 60}
      - key: http_method
        value: POST
        value_to_metric: true
        descriptors:
          - {key: subject_id, rate_limit: {unit: minute, requests_per_unit: 30}}
  - key: k1
    descriptors:
      - key: k2
        value_to_metric: true
        descriptors:
          - {key: k3, rate_limit: {unit: second, requests_per_unit: 1}}
      - {key: plain, rate_limit: {unit: second, requests_per_unit: 1}}
  - key: user
    value_to_metric: true
    descriptors:
      - key: action
        value: read*
        value_to_metric: true
        descriptors:
          - {key: resource, rate_limit: {unit: minute, requests_per_unit: 100}}
"""
WILD = """
domain: test-domain
descriptors:
  - {key: wild, value: foo*, rate_limit: {unit: minute, requests_per_unit: 20}}
  - key: shown
    value: foo*
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 20}
  - key: both
    value: foo*
    value_to_metric: true
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 20}
  - key: above
    value: foo*
    descriptors:
      - key: other
        value_to_metric: true
        descriptors:
          - {key: limit, rate_limit: {unit: minute, requests_per_unit: 20}}
  - key: files
    value: files/*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 100}
  - key: nested
    value: parent
    descriptors:
      - key: files
        value: nested/*
        share_threshold: true
        rate_limit: {unit: minute, requests_per_unit: 200}
  - key: files
    value: top/*
    share_threshold: true
    descriptors:
      - key: files
        value: nested/*
        share_threshold: true
        rate_limit: {unit: minute, requests_per_unit: 300}
  - key: route
    value: api/*
    share_threshold: true
    value_to_metric: true
    descriptors:
      - {key: method, rate_limit: {unit: minute, requests_per_unit: 60}}
  - key: service
    value: svc/*
    share_threshold: true
    descriptors:
      - key: endpoint
        detailed_metric: true
        rate_limit: {unit: minute, requests_per_unit: 80}
  - key: path
    value: path/*
    share_threshold: true
    descriptors:
      - key: file
        value: file/*
        descriptors:
          - {key: type, rate_limit: {unit: minute, requests_per_unit: 120}}
  - {key: file, value: test1, rate_limit: {unit: minute, requests_per_unit: 50}}
  - key: file
    value: test*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 100}
"""


class Named(NamedTuple):
    """A descriptor, as `key=value` for each entry, and the name that it is counted under."""

    file: str
    entries: str
    name: str


NAMES = [
    Named(BASIC, "key1=value1 subkey1=something", "test-domain.key1_value1.subkey1"),
    Named(BASIC, "key1=value1 subkey1=subvalue1", "test-domain.key1_value1.subkey1_subvalue1"),
    Named(BASIC, "key2=something", "test-domain.key2"),
    Named(BASIC, "key2=value2", "test-domain.key2_value2"),
    Named(BASIC, "key4=foo", "test-domain.key4"),
    Named(BASIC, "key7=unspecified_value", "test-domain.key7_unspecified_value"),
    Named(BASIC, "key7=another_value", "test-domain.key7_another_value"),
    Named(NESTED, "key-1=value-1", "nested.key-1"),
    Named(NESTED, "key-1=value-1 key-2=value-2", "nested.key-1.key-2"),
    Named(NESTED, "key_1=value-for-key-1", "nested.key_1_value-for-key-1"),
    Named(NESTED, "key_1=some-value-for-key-1", "nested.key_1_some-value-for-key-1"),
    Named(NESTED, "key_2=key-2-value", "nested.key_2_key-2-value"),
    Named(
        NESTED,
        "key_2=key-2-value key_3=requested-key3-value",
        "nested.key_2_key-2-value.key_3_requested-key3-value",
    ),
    Named(
        SHOWN,
        "route=draw http_method=GET subject_id=123",
        "domain.route_draw.http_method_GET.subject_id",
    ),
    Named(
        SHOWN,
        "route=api http_method=POST subject_id=user456",
        "domain.route_api.http_method_POST.subject_id",
    ),
    Named(
        SHOWN,
        "route=draw http_method=GET detailed=123",
        "domain.route_draw.http_method_GET.detailed_123",
    ),
    Named(SHOWN, "route= http_method=GET subject_id=1", "domain.route.http_method_GET.subject_id"),
    Named(
        SHOWN, "route=draw http_method= subject_id=1", "domain.route_draw.http_method.subject_id"
    ),
    Named(SHOWN, "route= http_method= subject_id=1", "domain.route.http_method.subject_id"),
    Named(SHOWN, "k1=X k2=Y k3=Z", "domain.k1.k2_Y.k3"),
    Named(SHOWN, "k1=X plain=Y", "domain.k1.plain"),
    Named(
        SHOWN,
        "user=alice action=readfile resource=documents",
        "domain.user_alice.action_readfile.resource",
    ),
    Named(WILD, "wild=foo1", "test-domain.wild_foo*"),
    Named(WILD, "shown=foo1", "test-domain.shown_foo1"),
    Named(WILD, "both=foo1", "test-domain.both_foo*"),
    Named(WILD, "above=foo1 other=bar limit=X", "test-domain.above_foo*.other_bar.limit"),
    Named(WILD, "files=files/a.pdf", "test-domain.files_files/*"),
    Named(WILD, "nested=parent files=nested/file1.txt", "test-domain.nested_parent.files_nested/*"),
    Named(WILD, "files=top/a files=nested/b", "test-domain.files_top/*.files_nested/*"),
    Named(WILD, "route=api/v1 method=GET", "test-domain.route_api/*.method"),
    Named(WILD, "service=svc/user endpoint=get", "test-domain.service_svc/*.endpoint_get"),
    Named(
        WILD, "path=path/foo file=file/doc1 type=pdf", "test-domain.path_path/*.file_file/*.type"
    ),
    Named(WILD, "file=test1", "test-domain.file_test1"),
    Named(WILD, "file=test23", "test-domain.file_test*"),
]


@pytest.mark.parametrize("case", NAMES, ids=lambda case: case.entries)
async def test_a_rule_is_counted_under_the_reference_servers_name(
    tmp_path: Path, case: Named
) -> None:
    """Keys, values, wildcards, and what the flags of a rule make of them."""
    file = tmp_path / "rules.yaml"
    file.write_text(case.file)
    metrics = Metrics()
    limiter = Limiter(MemoryStore(), Options(), lambda: NOW, metrics=metrics)
    limiter.use(RulesSource(file).load().rules)
    pairs = [entry.partition("=") for entry in case.entries.split(" ")]
    descriptor = Descriptor(tuple((key, value) for key, _, value in pairs))
    domain, *keys = case.name.split(".")
    await limiter.answer(limiter.prepare(Request(domain, (descriptor,))))
    assert {name for name, hits in totals(metrics).items() if hits} == {case.name}
    labels = dict(zip(("domain", "key1", "key2"), (domain, *keys), strict=False))
    name = "ratelimit_service_rate_limit_total_hits"
    assert read(metrics)[sample(name, **labels)] == 1


def totals(metrics: Metrics) -> Mapping[str, float]:
    """Hits by their names for StatsD, which have all levels."""
    family: HitsFamily = next(metrics.rule_hits.families())
    prefix, suffix = "ratelimit.service.rate_limit.", ".total_hits"
    return {
        name.removeprefix(prefix).removesuffix(suffix): series.value
        for name, series in family.statsd_series()
    }
