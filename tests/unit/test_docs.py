"""What the docs say is so."""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from penstock.cli import build_parser, main
from penstock.config.entity_mappings import MAPPING_KEYS
from penstock.config.flags import read_settings
from penstock.config.policy_file import read_policy
from penstock.config.problems import Problems
from penstock.config.rates import MAX_LIMITS, OPTIONS, parse_limit
from penstock.config.rules import RulesSource
from penstock.config.rules_file import read_rules_file
from penstock.core.amounts import MAX_TOKENS
from penstock.core.bucket import Bucket, Item
from penstock.core.entities import MAX_DEPTH, MAX_NAME, SYSTEM, Entity, Scope, StoredLimits
from penstock.core.limits import UINT32_MAX, Limit
from penstock.core.take import Key
from penstock.core.usage import USAGE_KEPT, Used, Window
from penstock.core.windows import parse_window
from penstock.service.policies import KEPT
from penstock.store.dynamodb.items.images import Image, write_record
from penstock.store.dynamodb.policy.records import audit_item, entity_item, limits_item
from penstock.store.dynamodb.table.schema import version_key
from penstock.store.dynamodb.usage.windows import Place, add_parameters
from penstock.store.policy_laws import AUDIT_KEPT_MS
from penstock.store.policy_port import AuditEvent

from tests.support import doc_tables
from tests.support.markdown import FENCE, ROOT, rows, table

README = ROOT / "README.md"
RULES, ENTITIES, DYNAMODB = (ROOT / f"docs/{name}.md" for name in ("rules", "entities", "dynamodb"))
LLM_RULES = ROOT / "deploy/config/llm.yaml"
MAX_LINES = 150

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
QUOTED_PATH = re.compile(r"`((?:deploy|docs|tests)/[^`\s]*)`")

# In pieces, so that this file does not mention them either.
REGISTRIES = tuple(
    ".".join(parts)
    for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("crates", "io"))
)


def readme() -> str:
    return README.read_text()


def command_lines(text: str) -> Iterator[str]:
    """The command lines in fences: continued ones joined, prompts and comments left out."""
    for language, body in FENCE.findall(text):
        if language not in {"", "sh", "bash", "shell", "console"}:
            continue
        for line in body.replace("\\\n", " ").splitlines():
            yield line.strip().removeprefix("$ ")


def penstock_commands(text: str) -> Iterator[list[str]]:
    """The arguments of each `penstock …`, with variables in front of it or not."""
    for line in command_lines(text):
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        if words and Path(words[0]).name == "penstock":
            ends = [i for i, word in enumerate(words) if word in {"|", "&", "&&", ">", ";"}]
            yield words[1 : ends[0] if ends else None]


def dead_references(text: str, folder: Path) -> list[str]:
    """Links and quoted paths of a page that lead to no file."""
    links = [link.partition("#")[0] for link in LINK.findall(text) if ":" not in link]
    dead = [link for link in links if link and not (folder / link).exists()]
    return dead + [path for path in QUOTED_PATH.findall(text) if not (ROOT / path).exists()]


def dead_anchors(text: str, page: Path) -> list[str]:
    """Links into a page, this one or another, that has no such heading."""
    dead = []
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        if anchor and ":" not in link:
            aim = (page.parent / path).read_text() if path else text
            headings = re.findall(r"^#+ (.*)$", FENCE.sub("", aim), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", line.lower()) for line in headings]
            dead += [] if anchor in [each.replace(" ", "-") for each in anchors] else [link]
    return dead


def shown_answers(text: str, groups: set[str]) -> Iterator[tuple[list[str], str]]:
    """Commands of some groups, with the answers that the page shows."""
    for language, body in FENCE.findall(text):
        for block in re.split(r"^\$ ", body, flags=re.MULTILINE) if language == "console" else ():
            line, _, answer = block.partition("\n")
            words = shlex.split(line)
            if words[:1] == ["penstock"] and words[1] in groups:
                yield words[1:], answer


def pages() -> list[Path]:
    folders = ("docs", "deploy", ".github")
    return [
        README,
        *(page for folder in folders for page in sorted(ROOT.glob(f"{folder}/**/*.md"))),
    ]


@pytest.mark.parametrize("page", doc_tables.pages(), ids=lambda page: page.name)
def test_tables_are_as_the_code_has_them(page: Path) -> None:
    """Those that are made from it. `make docs` writes them."""
    assert page.read_text() == doc_tables.fill(page.read_text()), "run `make docs`"


def test_every_table_stands_on_a_page() -> None:
    """Once: a table that was left out by mistake would be right all the same."""
    pages = [page.read_text() for page in doc_tables.pages()]
    marked = [name for page in pages for name in doc_tables.MARKED.findall(page)]
    assert sorted(marked) == sorted(doc_tables.TABLES)
    assert sum(page.count("<!-- table:") for page in pages) == len(marked)


def test_a_table_that_is_out_of_date_is_made_anew() -> None:
    """And what stands around it stays."""
    old = "before\n<!-- table: settings -->\n| old |\n<!-- end -->\nafter\n<!-- end -->\n"
    new = doc_tables.fill(old)
    row = "| `--grpc-port` | `GRPC_PORT` | `8081` | port to listen on; 0 picks a free one |\n"
    assert row in new
    assert new.replace(doc_tables.settings_table(), "| old |") == old
    with pytest.raises(KeyError):
        doc_tables.fill(old.replace("settings", "setings"))


def test_the_readme_is_short() -> None:
    """The rest is behind links."""
    assert len(readme().splitlines()) <= MAX_LINES


def test_the_readme_shows_the_example_rules() -> None:
    """Byte for byte, in a fence of their own."""
    example = (ROOT / "deploy/config/example.yaml").read_text()
    assert example in [body for language, body in FENCE.findall(readme()) if language == "yaml"]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    """Relative links, and paths in backticks."""
    assert dead_references(page.read_text(), page.parent) == []
    assert dead_anchors(page.read_text(), page) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_can_be_typed(page: Path) -> None:
    """The real parser takes every one of them, and its settings can be read."""
    for command in penstock_commands(page.read_text()):
        read_settings(build_parser().parse_args(command), {})


def test_the_pages_that_should_show_commands_do() -> None:
    """The test above would pass on pages without any."""
    for page in (README, ENTITIES, DYNAMODB):
        assert list(penstock_commands(page.read_text())), f"{page.name} shows no penstock command"


def test_the_commands_on_stored_limits_answer_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that need no server, in the order of the page."""
    monkeypatch.setenv("PENSTOCK_STORE", f"sqlite:///{tmp_path}/limits.db")
    shown = list(shown_answers(ENTITIES.read_text(), {"limits", "entity"}))
    assert len(shown) > 3
    for command, answer in shown:
        assert main(command) == 0
        assert capsys.readouterr().out == answer


def test_the_examples_of_stored_limits_can_be_read() -> None:
    """The mapping as in its file, the policy by the reader of `penstock policy`."""
    blocks = [body for language, body in FENCE.findall(ENTITIES.read_text()) if language == "yaml"]
    mapping, money, policy = blocks
    assert mapping == LLM_RULES.read_text()
    assert RulesSource(LLM_RULES).load().warnings == ()
    read = read_policy("policy.yaml", policy, {})
    assert read.entities
    assert SYSTEM in read.limits
    in_brief = [body for _, body in FENCE.findall(RULES.read_text()) if "entities:" in body]
    assert in_brief
    problems = Problems()
    for text in (money, *in_brief):
        assert read_rules_file("rules.yaml", text, problems) is not None
    assert problems.errors + problems.warnings == ()


def test_the_page_on_stored_limits_has_every_field() -> None:
    """Of mappings, in a table of their own."""
    assert set(table(ENTITIES, "field of `entities`")) == {f"`{key}`" for key in MAPPING_KEYS}


def test_the_page_on_stored_limits_has_every_form_of_a_rate() -> None:
    """The options of rates in a table of their own, and examples that can be read."""
    options = table(ENTITIES, "option after a rate")
    named = dict.fromkeys([re.findall("[a-z_]+", option)[0] for option in options])
    assert list(named) == list(OPTIONS)
    rates = [rate for row in table(ENTITIES, "rate") for rate in re.findall("`(.*?)`", row)]
    examples = re.findall(r"^penstock limits set (.*?)(?: +#.*)?$", ENTITIES.read_text(), re.M)
    assert len(examples) > 3
    for example in examples:
        rates += [one.partition("=")[2] for one in shlex.split(example) if "=" in one]
    for rate in rates:
        parse_limit("x", rate)


def test_the_page_on_stored_limits_has_the_bounds_of_the_code() -> None:
    """Each number stands in the table, or below it."""
    bounds = table(ENTITIES, "what")
    assert bounds["limits of a scope"] == [str(MAX_LIMITS)]
    assert bounds["levels of a chain of parents, the entity included"] == [str(MAX_DEPTH)]
    assert bounds["name of an entity or resource"][0].startswith(f"{MAX_NAME} characters")
    (most,) = bounds["a rate's tokens, its burst and its `max_debt`"]
    assert MAX_TOKENS == 10**15
    assert most.startswith(f"10^15. Answers to Envoy show at most {UINT32_MAX:,}")
    assert f"the last {KEPT:,} keys" in ENTITIES.read_text()
    assert f"kept for {AUDIT_KEPT_MS // 86_400_000} days" in ENTITIES.read_text()


# What docs/dynamodb.md says of permissions and items.


def test_the_permissions_are_those_that_the_code_needs() -> None:
    """Read from its source: no operation is called but by a literal name."""
    sources = ROOT / "server/penstock/store/dynamodb"
    server = operations(
        sources / "items/access.py", sources / "buckets/sender.py", sources / "table/calls.py"
    )
    # A transaction needs the rights of its parts.
    policy = operations(*sources.glob("policy/*.py"))
    shown = {
        who: set(re.findall(r"`(\w+)`", cells[0])) for who, cells in table(DYNAMODB, "who").items()
    }
    assert shown["a server"] == server
    assert shown["`penstock limits`, `entity`, `bucket`, `policy`, `audit`"] == server | policy
    assert shown["`penstock table`"] == operations(*sources.glob("table/*.py"))
    # What it shares with a server's own reads, without what writes.
    reading = operations(sources / "usage/store.py") | (server - {"PutItem", "UpdateItem"})
    assert shown["`penstock usage`"] == reading
    worker = {"DescribeTable", "GetItem"} | operations(*sources.glob("usage/*.py"))
    streams = {"DescribeStream", "GetShardIterator", "GetRecords"}
    assert shown["`penstock aggregate`"] == worker | {"Query"} | streams
    assert streams == operations(sources / "aws/streams.py")


def operations(*files: Path) -> set[str]:
    """The operations of DynamoDB that source files call, by the names of their permissions."""
    text = "\n".join(file.read_text() for file in files)
    called = re.findall(r"call\w*\([^\"()]*\"([a-z_]+)\"", text)
    parts = re.findall(r"\"(Put|Update|Delete|ConditionCheck)\"", text)
    names = {"".join(word.capitalize() for word in name.split("_")) for name in called}
    return names - {"TransactWriteItems"} | {f"{part}Item" for part in parts}


NAMES = {
    "entity": "user-123", "resource": "gpt-4", "parent": "project-1",
    "entries": "user=bob", "domain": "example",
}  # fmt: skip
EVENT = AuditEvent("user-123", "entity.write", 0, "alice", None, None, None)
RPM = Limit.per(100, 60_000, name="rpm", window=parse_window("fixed"))
LIMITS = StoredLimits((RPM._replace(max_debt=1),), 1)
BUCKET = Image(Item(0, (Bucket(LIMITS.limits[0], 0, 0, 1),)), 1, "", Key("project-1", "gpt-4"))


def usage_item() -> dict[str, Any]:
    """A window as the worker writes it."""
    place = Place(Key("user-123", "gpt-4"), Window.DAY, 0)
    written = add_parameters(place, Used(1, {"rpm": 1}), 1, None, USAGE_KEPT)
    values = iter(written["ExpressionAttributeValues"].values())
    names = written["ExpressionAttributeNames"].values()
    return {**written["Key"], **{name: next(values) for name in names}}


ITEMS = {
    "bucket of an entity": write_record(Key("user-123", "gpt-4"), BUCKET),
    "bucket of a rule": write_record(Key("user=bob", "$domain:example"), BUCKET),
    "entity": entity_item(Entity("user-123", "project-1"), 0),
    "limits of an entity for a resource": limits_item(Scope("user-123", "gpt-4"), LIMITS),
    "limits of an entity": limits_item(Scope("user-123"), LIMITS),
    "limits of a resource": limits_item(Scope(None, "gpt-4"), LIMITS),
    "limits of the system": limits_item(SYSTEM, LIMITS._replace(on_unavailable="deny")),
    "audit event": audit_item(EVENT, "1", AUDIT_KEPT_MS),
    "usage": usage_item(),
    "version of the table": version_key(),
}


@pytest.mark.parametrize("name", ITEMS)
def test_the_keys_of_items_are_as_shown(name: str) -> None:
    """Filled in for an example, those of the page are those of the code."""
    partition, sort, indexes = table(DYNAMODB, "item")[name]
    shown = {"PK": quoted(partition)[0], "SK": quoted(sort)[0]}
    for index in filter(None, indexes.split("; ")):
        shown[f"{index[:4]}PK"], shown[f"{index[:4]}SK"] = quoted(index)
    keys = {key: value["S"] for key, value in ITEMS[name].items() if re.search("[PS]K$", key)}
    assert shown == keys


def test_the_attributes_of_items_are_as_shown() -> None:
    """All of them, and no others."""
    shown: dict[str, set[str]] = {}
    for first, attributes, _ in rows(DYNAMODB, "item", "attribute"):
        names = [name.replace("{limit}", "rpm") for name in re.findall(r"`([^`]+)`", attributes)]
        # `_bx` is short for the one before it, with another end.
        full = [names[0][:-3] + name if name.startswith("_") else name for name in names]
        shown.setdefault(first, set()).update(full)
    found: dict[str, set[str]] = {}
    for name, item in ITEMS.items():
        kept = {key for key in item if not re.search("[PS]K$", key)}
        kind = name.split()[0] if name.startswith(("bucket", "limits")) else name
        found.setdefault(kind, set()).update(kept)
    found["limits"] -= {"entity_id", "resource"}
    del found["version of the table"]
    assert shown == found


def quoted(cell: str) -> list[str]:
    """What is in backticks, filled in."""
    window = {"window": "day", "start": "1970-01-01"}
    fill = {**NAMES, **window, "subject": EVENT.subject, "event": "1"}
    return [text.replace("⇥", "\t").format(**fill) for text in re.findall("`([^`]*)`", cell)]


def test_the_changelog_has_this_version() -> None:
    """A release without a word on it is none."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    headings = re.findall(r"^#+ .*$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert any(re.search(rf"(?<![\w.]){re.escape(version)}(?![\w.])", line) for line in headings)


def test_extras_are_named_by_what_has_to_be_installed() -> None:
    """The distribution has another name than the package and the command."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sources = [*pages(), ROOT / "CHANGELOG.md", *ROOT.glob("server/penstock/**/*.py")]
    named = [
        found
        for source in sources
        for found in re.findall(r"pip install '?([\w-]+)\[(\w+)\]", source.read_text())
    ]
    assert set(named) == {(project["name"], extra) for extra in project["optional-dependencies"]}


def test_no_file_mentions_a_package_registry() -> None:
    """Where packages come from is for those who install to say."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False
    ).stdout.split(b"\0")
    if tracked == [b""]:
        pytest.skip("not a git checkout")
    found = []
    for name in tracked[:-1]:
        path = ROOT / name.decode()
        if path.is_file():
            text = path.read_bytes()
            found += [(path.name, host) for host in REGISTRIES if host.encode() in text]
    assert found == []


PAGE = """\
[good](README.md#part) [web](https://example.com/x) [bad](nowhere.md) `deploy/config/example.yaml`
`docs/nowhere.md`
```sh
# penstock is a comment
$ GRPC_PORT=1 penstock serve \\
    --config "a b" | head
other penstock
.venv/bin/penstock config check x
```
```yaml
penstock: no
```
"""


def test_the_readers_of_docs_see_what_is_there() -> None:
    """The checks above would pass on a page that they can't read."""
    assert dead_references(PAGE, ROOT) == ["nowhere.md", "docs/nowhere.md"]
    anchors = "# A part\n[good](#a-part) [good](README.md#choosing-a-store) [bad](README.md#part)"
    assert dead_anchors(anchors, README) == ["README.md#part"]
    assert list(penstock_commands(PAGE)) == [
        ["serve", "--config", "a b"],
        ["config", "check", "x"],
    ]
