"""The templates of deploy/aws at work: a table made by one, for roles with the policies of another.

CloudFormation and IAM are played, by the templates' own words. DynamoDB is DynamoDB Local.
"""

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import botocore.session
import pytest
from penstock.cli import build_parser, main
from penstock.cli.completion_words import find_commands

from tests.support.cloudformation import REGION, TEMPLATES, Gate, Template, rights, run_gate
from tests.support.patient import wait_long_for_dynamodb
from tests.support.processes import penstock
from tests.unit.cli.command import PATIENT, Ran

RULES = TEMPLATES.parent / "config"

LATER = {"TimeToLiveSpecification", "PointInTimeRecoverySpecification"}
"""What CloudFormation asks for when the table is there."""

FILES = {
    "stock.yaml": """\
resources:
  gpt-4: {limits: {rpm: 100/minute, tpm: 1000/minute}}
entities:
  everyone: {}
  project-1: {parent: everyone}
  project-2: {parent: everyone}
  user-1: {parent: project-1, cascade: true}
  user-2: {parent: project-1, cascade: true}
""",
    "change.yaml": "resources: {gpt-4: {limits: {rpm: 200/minute}}}",
}
STOCKING = """\
table create
policy apply -f stock.yaml --yes
"""
READING = """\
table status
limits show --entity user-1 --resource gpt-4
limits list
entity show user-1
entity list
entity children project-1
bucket show user-1 gpt-4
bucket list --resource gpt-4
bucket list --resource $domain:example
policy diff -f change.yaml
policy export
audit user-1
usage user-1
usage --top --resource gpt-4
"""
WRITING = """\
limits set --entity user-2 rpm=5/minute
entity create user-3
entity update user-2 --parent project-2
bucket reset user-1 gpt-4 --yes
policy apply -f change.yaml --yes
limits delete --resource gpt-4 --yes
entity delete user-1 --yes
"""
FOR_THE_STACK = {"table delete"}
"""The table goes with `aws`, as it came."""


@dataclass(frozen=True)
class Stacks:
    """A table, and a way to it for each policy."""

    store_url: str
    folder: Path
    gates: dict[str, Gate]

    def store(self, policy: str) -> str:
        return f"{self.store_url}&endpoint={self.gates[policy].url}"

    def run(self, policy: str, command: str) -> Ran:
        """Run a command with the rights of one policy."""
        words = [str(self.folder / word) if word in FILES else word for word in command.split()]
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            code = main([*words, "--store", self.store(policy)])
        return Ran(code, out.getvalue(), err.getvalue())

    def decide(self, *requests: str) -> list[int]:
        """Ask a server that has its own policy, and no more: 0 is OK."""
        store = self.store("ServerPolicy")
        with penstock(self.folder, rules=RULES, store=store, patient=True) as server:
            command = ["check", "--address", server.address, *PATIENT, "--domain"]
            return [main([*command, *request.split()]) for request in requests]


@contextmanager
def deploy(dynamodb_url: str, folder: Path) -> Iterator[Stacks]:
    """What `aws cloudformation deploy` does, for the table and the policies."""
    name = f"aws-{uuid4().hex}"
    template = Template("table.yaml", TableName=name, DeletionProtection="false")
    table = template.properties("Table")
    table["DeletionProtectionEnabled"] = table["DeletionProtectionEnabled"] == "true"
    table["StreamSpecification"]["StreamEnabled"] = True  # CloudFormation adds this
    for file, text in FILES.items():
        (folder / file).write_text(text)
    with ExitStack() as stack:
        wait_long_for_dynamodb(stack.enter_context(pytest.MonkeyPatch.context()))
        # This client refuses what is no parameter of the real API.
        client = botocore.session.get_session().create_client(
            "dynamodb", region_name=REGION, endpoint_url=dynamodb_url
        )
        stack.callback(client.close)
        client.create_table(**{key: value for key, value in table.items() if key not in LATER})
        stack.callback(client.delete_table, TableName=name)
        ttl = table["TimeToLiveSpecification"]
        client.update_time_to_live(TableName=name, TimeToLiveSpecification=ttl)
        policies = Template("policies.yaml", TableName=name).resources()
        gates = {
            policy: stack.enter_context(run_gate(dynamodb_url, rights(one["Properties"])))
            for policy, one in policies.items()
        }
        yield Stacks(template.output("StoreUrl"), folder, gates)


@pytest.fixture(scope="module")
def stacks(dynamodb_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stacks]:
    """With entities and limits in the table, and with buckets that a server made."""
    with deploy(dynamodb_url, tmp_path_factory.mktemp("aws")) as stacks:
        for command in STOCKING.splitlines():
            assert stacks.run("AdminPolicy", command).code == 0, command
        assert stacks.decide("example --repeat 6 user=bob", "llm api_key=user-1,model=gpt-4") == [
            1,
            0,
        ]
        yield stacks


def test_a_new_table_is_ready_once_it_has_its_version(dynamodb_url: str, tmp_path: Path) -> None:
    """The template has all the rest. `table create` adds it, without a right to create tables."""
    actions = "status", "create", "status"
    with deploy(dynamodb_url, tmp_path) as stacks:
        before, added, after = [stacks.run("AdminPolicy", f"table {action}") for action in actions]
    assert before.code == 1
    assert "not ready: the version item is missing; run: penstock table create" in before.out
    assert added.out.endswith(": added the version item\n")
    assert after.code == 0
    # A busy machine may lose a call, which `table` tells and repeats.
    assert [line for line in after.err.splitlines() if not line.startswith("trying again")] == []
    assert "on demand" in after.out
    assert after.out.endswith("\nready\n")


def test_a_server_needs_all_of_its_policy_and_no_more(stacks: Stacks) -> None:
    """It has decided by rules and by stored limits, in one item and in a cascade."""
    gate = stacks.gates["ServerPolicy"]
    assert gate.refused == set()
    assert gate.used == gate.allowed


def test_readers_need_all_of_their_policy_and_no_more(stacks: Stacks) -> None:
    """Every command that changes nothing."""
    for command in READING.splitlines():
        assert stacks.run("ReadOnlyPolicy", command).code < 2, command
    gate = stacks.gates["ReadOnlyPolicy"]
    assert gate.refused == set()
    assert gate.used == gate.allowed


def test_readers_change_nothing(stacks: Stacks) -> None:
    """Every command that would is refused, and says that it is a matter of rights."""
    before = stacks.run("AdminPolicy", "policy export").out
    for command in WRITING.splitlines():
        ran = stacks.run("ReadOnlyPolicy", command)
        assert ran.code == 2, command
        assert "AccessDenied" in ran.err, ran.err
    assert stacks.run("AdminPolicy", "policy export").out == before


def test_admins_need_all_of_their_policy_and_no_more(stacks: Stacks) -> None:
    """Every command that changes something, but for the one that deletes the table.

    They may read what readers may. This test comes last: what it deletes, the others need.
    """
    gate = stacks.gates["AdminPolicy"]
    for command in WRITING.splitlines():
        assert stacks.run("AdminPolicy", command).code == 0, command
    assert gate.refused == set()
    assert gate.used | stacks.gates["ReadOnlyPolicy"].allowed == gate.allowed

    assert stacks.run("AdminPolicy", "table delete --yes").code == 2
    assert {action for action, _ in gate.refused} == {"dynamodb:DeleteTable"}


def test_the_commands_here_are_all_that_there_are() -> None:
    """A new command has to be put to the policies too."""
    here = {" ".join(line.split()[:2]) for line in (STOCKING + READING + WRITING).splitlines()}
    alone = ("audit", "usage")
    here = {name.split()[0] if name.split()[0] in alone else name for name in here} | FOR_THE_STACK
    found = list(find_commands(build_parser()))
    there = {" ".join(command.path) for command in found if not command.commands}
    # The first six need no rights beyond a server's, `backup` and `gc` are for SQLite alone, the
    # rights of `aggregate` are in usage.yaml, and those of `migrate`, which is run once, in
    # docs/dynamodb.md.
    others = {"serve", "check", "config", "simulate", "top", "completion"}
    others |= {"backup", "gc", "aggregate", "migrate"}
    assert here == {name for name in there if name.split()[0] not in others}
