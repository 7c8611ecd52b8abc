"""The templates of deploy/aws: sound, and in step with the code and with their README."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from penstock.config.usage_kept import format_usage_kept
from penstock.core.usage import USAGE_KEPT
from penstock.store.dynamodb.aws.location import Location, parse_location
from penstock.store.dynamodb.table.schema import (
    STREAM_VIEW,
    WARM_AT_FIRST,
    create_arguments,
    ttl_arguments,
)
from penstock.usage_lambda import ARCHIVE, RETENTION, STORE

from tests.support.cloudformation import TEMPLATES, Template, rights
from tests.support.markdown import table
from tests.unit.test_docs import DYNAMODB, command_lines

CFN_LINT = Path(sys.executable).parent / "cfn-lint"
NAMES = ("table.yaml", "policies.yaml", "alarms.yaml", "usage.yaml")
README = TEMPLATES / "README.md"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1"

# Those of a table, from AWS's page "DynamoDB metrics and dimensions" as it was in 2026. Each with
# the sets of dimensions that it comes with. CloudWatch takes an alarm on any others, which then
# never has data, and so is never raised.
ALONE = frozenset({"TableName"})
BY_INDEX = frozenset({"TableName", "GlobalSecondaryIndexName"})
BY_OPERATION = frozenset({"TableName", "Operation"})
METRICS = {
    "ConditionalCheckFailedRequests": {ALONE},
    "ConsumedReadCapacityUnits": {ALONE, BY_INDEX},
    "ConsumedWriteCapacityUnits": {ALONE, BY_INDEX},
    "ReadThrottleEvents": {ALONE, BY_INDEX},
    "SuccessfulRequestLatency": {BY_OPERATION},
    "SystemErrors": {BY_OPERATION},
    "ThrottledRequests": {BY_OPERATION},
    "TransactionConflict": {ALONE},
    "UserErrors": {frozenset[str]()},
    "WriteAccountLimitThrottleEvents": {ALONE},
    "WriteKeyRangeThroughputThrottleEvents": {ALONE, BY_INDEX},
    "WriteMaxOnDemandThroughputThrottleEvents": {ALONE, BY_INDEX},
    "WriteThrottleEvents": {ALONE, BY_INDEX},
}


def lint(files: Iterable[Path]) -> list[tuple[str, str, str]]:
    """What cfn-lint has to say, its advice included: the file, the rule, and why."""
    command = [str(CFN_LINT), "--include-checks", "I", "--format", "json", "--", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    return [(Path(one["Filename"]).name, one["Rule"]["Id"], one["Message"]) for one in found]


def test_cfn_lint_finds_nothing() -> None:
    """In any template. Its rules are in the package, so it asks nobody."""
    assert {file.name for file in TEMPLATES.glob("*.yaml")} == set(NAMES)
    assert lint(TEMPLATES / name for name in NAMES) == []


def test_cfn_lint_finds_what_is_broken(tmp_path: Path) -> None:
    """The test above would pass with a linter that reads nothing."""
    for name, right, wrong in (
        ("table.yaml", "PAY_PER_REQUEST", "PAY_AS_YOU_GO"),
        ("policies.yaml", "Effect: Allow", "Effect: Perhaps"),
        ("alarms.yaml", "!Ref LatencyMs", "!Ref LatencyS"),
        ("usage.yaml", "!Ref CodeKey", "!Ref CodeName"),
    ):
        text = (TEMPLATES / name).read_text()
        assert right in text
        (tmp_path / name).write_text(text.replace(right, wrong, 1))
    found = {(name, rule) for name, rule, _ in lint(tmp_path / name for name in NAMES)}
    broken = {("table.yaml", "E3030"), ("policies.yaml", "E3510"), ("alarms.yaml", "E1020")}
    broken.add(("usage.yaml", "E1020"))
    assert broken <= found


# The table.


def test_the_table_is_that_of_the_code() -> None:
    """Its key, its indexes and what they project, its billing and its TTL."""
    made = Template("table.yaml").properties("Table")
    ours = create_arguments(None, stream=True) | ttl_arguments()
    # CloudFormation turns a stream on by its view alone.
    del ours["StreamSpecification"]["StreamEnabled"]
    assert {key: in_order(made[key]) for key in ours} == {k: in_order(v) for k, v in ours.items()}
    beside = {"DeletionProtectionEnabled", "PointInTimeRecoverySpecification", "TableName", "Tags"}
    assert made.keys() - ours.keys() == beside


def in_order(value: Any) -> Any:
    """Lists of named things; the order of a key's parts is told by their kinds."""
    if isinstance(value, list):
        return sorted(map(in_order, value), key=str)
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    return value


def test_the_table_stays_whatever_happens_to_the_stack() -> None:
    """By default it can't be deleted, is backed up, and is kept when the stack goes."""
    stack = Template("table.yaml").resources()["Table"]
    assert stack["DeletionPolicy"] == stack["UpdateReplacePolicy"] == "Retain"
    assert stack["Properties"]["DeletionProtectionEnabled"] == "true"
    recovery = {"PointInTimeRecoveryEnabled": "true"}
    assert stack["Properties"]["PointInTimeRecoverySpecification"] == recovery


def warm(read: int, write: int) -> dict[str, int]:
    return {"ReadUnitsPerSecond": read, "WriteUnitsPerSecond": write}


@pytest.mark.parametrize(
    ("parameters", "added"),
    [
        ({}, {}),
        ({"MaxWriteRequestUnits": 9}, {"OnDemandThroughput": {"MaxWriteRequestUnits": 9}}),
        ({"MaxReadRequestUnits": 9}, {"OnDemandThroughput": {"MaxReadRequestUnits": 9}}),
        ({"WarmReadUnits": 20_000}, {"WarmThroughput": warm(20_000, WARM_AT_FIRST.write)}),
        ({"WarmWriteUnits": 20_000}, {"WarmThroughput": warm(WARM_AT_FIRST.read, 20_000)}),
        (
            {"KmsKeyArn": KEY},
            {"SSESpecification": {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY}},
        ),
    ],
)
def test_options_of_the_table_add_one_thing(
    parameters: dict[str, Any], added: dict[str, Any]
) -> None:
    """And leave the rest as it is by default."""
    default = Template("table.yaml").properties("Table")
    assert Template("table.yaml", **parameters).properties("Table") == default | added


def test_the_stream_of_the_table_can_be_left_out() -> None:
    """It is on by default, with both images, because usage is counted from it."""
    made = Template("table.yaml").properties("Table")
    assert made.pop("StreamSpecification") == {"StreamViewType": STREAM_VIEW}
    assert Template("table.yaml", Stream="false").properties("Table") == made


def test_the_store_url_leads_to_the_table() -> None:
    """The code reads it as it stands."""
    url = Template("table.yaml", TableName="limits").output("StoreUrl")
    options = dict(parse_qsl(urlsplit(url).query))
    assert parse_location(url, options) == Location("limits", "eu-west-1")


# The policies. tests/e2e/test_aws.py tells that they suffice, and that each right is used.


def documented(who: str) -> set[str]:
    """The permissions that docs/dynamodb.md shows, which its own test compares with the code."""
    return set(re.findall(r"`(\w+)`", table(DYNAMODB, "who")[who][0]))


def test_the_policies_have_the_permissions_that_the_docs_show() -> None:
    """But for those which a table needs that its own stack makes and changes."""
    commands = documented("`penstock limits`, `entity`, `bucket`, `policy`, `audit`")
    by_stack = {"CreateTable", "UpdateTable", "UpdateTimeToLive", "DeleteTable"}
    assert by_stack < documented("`penstock table`")
    assert actions("ServerPolicy") == documented("a server")
    assert actions("AdminPolicy") == (commands | documented("`penstock table`")) - by_stack
    assert actions("ReadOnlyPolicy") < actions("AdminPolicy")


@pytest.mark.parametrize("name", ["ServerPolicy", "AdminPolicy", "ReadOnlyPolicy"])
def test_a_key_may_be_used_through_dynamodb_alone(name: str) -> None:
    """With a key there is one more statement, and nothing else."""
    plain, keyed = (
        Template("policies.yaml", KmsKeyArn=arn).properties(name)["PolicyDocument"]["Statement"]
        for arn in ("", KEY)
    )
    *others, last = keyed
    assert others == plain
    assert (last["Action"], last["Resource"]) == ("kms:Decrypt", KEY)
    via = {"kms:ViaService": "dynamodb.eu-west-1.amazonaws.com"}
    assert last["Condition"] == {"StringEquals": via}


def actions(name: str) -> set[str]:
    allowed = rights(Template("policies.yaml").properties(name))
    return {action.removeprefix("dynamodb:") for action, _ in allowed}


# The alarms.


def watched() -> Iterator[tuple[str, dict[str, str]]]:
    """The metrics of all alarms, with their dimensions."""
    for alarm in Template("alarms.yaml", WriteUnitsPerSecond=1).resources().values():
        properties = alarm["Properties"]
        stats = [one["MetricStat"] for one in properties.get("Metrics", []) if "MetricStat" in one]
        for metric in [one["Metric"] for one in stats] or [properties]:
            assert metric["Namespace"] == "AWS/DynamoDB"
            names = {one["Name"]: one["Value"] for one in metric["Dimensions"]}
            yield metric["MetricName"], names


def test_alarms_are_on_metrics_that_there_are() -> None:
    """With the dimensions that DynamoDB sends them with, of our table and its index."""
    seen = list(watched())
    for metric, dimensions in seen:
        assert frozenset(dimensions) in METRICS[metric]
        assert dimensions["TableName"] == "penstock"
        assert dimensions.get("GlobalSecondaryIndexName", "GSI2") == "GSI2"
    assert {metric for metric, _ in seen} == {
        "ConsumedWriteCapacityUnits",
        "ReadThrottleEvents",
        "SuccessfulRequestLatency",
        "SystemErrors",
        "WriteThrottleEvents",
    }


def test_errors_are_counted_for_all_that_a_server_calls() -> None:
    """But for what it asks once, when it starts."""
    once = {"DescribeTable", "DescribeTimeToLive"}
    counted = {one["Operation"] for metric, one in watched() if metric == "SystemErrors"}
    assert counted == documented("a server") - once | {"TransactWriteItems"}


@pytest.mark.parametrize("name", ["SystemErrors", "WritesOverBudget"])
def test_sums_are_of_metrics_that_the_alarm_has(name: str) -> None:
    """The sum is what is watched, over one period, and no metric beside it."""
    alarm = Template("alarms.yaml", WriteUnitsPerSecond=7).properties(name)
    total, *metrics = alarm["Metrics"]
    assert total["ReturnData"]
    assert not any(one["ReturnData"] for one in metrics)
    assert len({(one["MetricStat"]["Period"], one["MetricStat"]["Stat"]) for one in metrics}) == 1
    assert total["Expression"].startswith("SUM(FILL(METRICS(), 0))")
    assert set(re.findall(r"PERIOD\((\w+)\)", total["Expression"])) <= {
        one["Id"] for one in metrics
    }


def test_alarms_tell_the_topic_if_there_is_one() -> None:
    """When they begin and when they end."""
    for topic, told in (("", None), ("arn:aws:sns:eu-west-1:123456789012:alerts", 1)):
        for alarm in Template("alarms.yaml", TopicArn=topic).resources().values():
            expected = told and [topic]
            assert alarm["Properties"].get("AlarmActions") == expected
            assert alarm["Properties"].get("OKActions") == expected


def test_there_is_no_budget_unless_it_is_given() -> None:
    """Nobody else knows what is much."""
    assert "WritesOverBudget" not in Template("alarms.yaml").resources()
    budget = Template("alarms.yaml", WriteUnitsPerSecond=7).properties("WritesOverBudget")
    assert budget["Threshold"] == 7


# Usage. tests/unit/store/dynamodb/test_usage_lambda.py tells what the filter lets through.

FUNCTION = {"CodeBucket": "my-bucket", "StreamArn": "arn:aws:dynamodb:eu-west-1:1:table/t/stream/s"}


def test_the_policy_of_usage_has_the_permissions_that_the_docs_show() -> None:
    """On the table, and on whichever stream the table has."""
    statements = Template("usage.yaml").properties("UsagePolicy")["PolicyDocument"]["Statement"]
    allowed = {action for one in statements for action in one["Action"]}
    shown = documented("`penstock aggregate`")
    assert {action.removeprefix("dynamodb:") for action in allowed} == shown
    assert [one["Resource"].rpartition(":")[2] for one in statements] == [
        "table/penstock",
        "table/penstock/stream/*",
    ]


def test_there_is_no_function_without_its_code() -> None:
    """The policy alone is enough for a worker of one's own."""
    assert Template("usage.yaml").resources().keys() == {"UsagePolicy"}
    assert Template("usage.yaml", **FUNCTION).tree["Resources"].keys() == {
        "UsagePolicy", "Role", "Function", "Source", "UsageLate",
    }  # fmt: skip


def test_the_function_is_that_of_the_code() -> None:
    """Its handler can be imported, and it reads the stream from the beginning."""
    tree = Template("usage.yaml", **FUNCTION).tree["Resources"]
    module, _, name = tree["Function"]["Properties"]["Handler"].rpartition(".")
    assert callable(getattr(import_module(module), name))
    variables = tree["Function"]["Properties"]["Environment"]["Variables"]
    assert variables.keys() == {ARCHIVE, RETENTION, STORE}
    default = Template("usage.yaml").tree["Parameters"]["UsageRetention"]["Default"]
    assert default == format_usage_kept(USAGE_KEPT)
    source = tree["Source"]["Properties"]
    assert source["StartingPosition"] == "TRIM_HORIZON"


# The README.


def test_the_readme_has_every_template_policy_alarm_and_metric() -> None:
    """By the names in the templates, and no others."""
    columns = ("template", "policy", "alarm")
    shown = {column: {name.strip("`") for name in table(README, column)} for column in columns}
    assert shown["template"] == {f"deploy/aws/{name}" for name in NAMES}
    assert shown["policy"] == Template("policies.yaml").resources().keys()
    assert shown["alarm"] == Template("alarms.yaml", WriteUnitsPerSecond=1).resources().keys()
    named = set(re.findall(r"`(\w+(?:Events|Errors|Requests))`", README.read_text()))
    assert named - shown["alarm"] <= METRICS.keys()


def test_the_readme_deploys_templates_with_parameters_that_they_have() -> None:
    """And asks stacks for outputs that they have."""
    text = README.read_text()
    lines = [line for line in command_lines(text) if line.startswith("aws cloudformation deploy")]
    assert len(lines) > len(NAMES)
    for line in lines:
        (name,) = re.findall(r"--template-file deploy/aws/(\S+)", line)
        given = re.findall(r" (\w+)=", line.partition("--parameter-overrides")[2].split(" --")[0])
        assert given
        assert set(given) <= Template(name).tree["Parameters"].keys()
        assert ("CAPABILITY_IAM" in line) == (name in {"policies.yaml", "usage.yaml"})
    outputs = set(re.findall(r"OutputKey=='(\w+)'", text))
    assert outputs
    assert outputs <= Template("policies.yaml").tree["Outputs"].keys()
