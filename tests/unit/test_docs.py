"""What the docs say is so."""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.cli import build_parser
from penstock.config.settings import DECLARED, read_settings

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
MAX_LINES = 150

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
QUOTED_PATH = re.compile(r"`((?:deploy|docs|tests)/[^`\s]*)`")

# In pieces, so that this file does not mention them either.
REGISTRIES = tuple(
    ".".join(parts)
    for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("crates", "io"))
)


def readme() -> str:
    return README.read_text()


def settings_table() -> str:
    """The table that README.md must have."""
    rows = [
        f"| `{setting.flag}` | `{setting.env}` | "
        + (f"`{setting.default_text}` | " if setting.default_text else "| ")
        + f"{setting.doc} |"
        for setting in DECLARED
    ]
    return "\n".join(["| flag | environment | default | meaning |", "|---|---|---|---|", *rows])


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


def pages() -> list[Path]:
    return [README, *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("deploy/**/*.md"))]


def test_the_readme_has_every_setting() -> None:
    """As the code declares them, in that order."""
    table = settings_table()
    assert table in readme(), f"README.md must have this table:\n\n{table}\n"


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


def test_the_commands_of_the_readme_can_be_typed() -> None:
    """The real parser takes every one of them, and its settings can be read."""
    commands = list(penstock_commands(readme()))
    assert commands, "README.md shows no penstock command"
    for command in commands:
        read_settings(build_parser().parse_args(command), {})


def test_the_changelog_has_this_version() -> None:
    """A release without a word on it is none."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    headings = re.findall(r"^#+ .*$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert any(re.search(rf"(?<![\w.]){re.escape(version)}(?![\w.])", line) for line in headings)


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
    assert list(penstock_commands(PAGE)) == [
        ["serve", "--config", "a b"],
        ["config", "check", "x"],
    ]
    row = "| `--grpc-port` | `GRPC_PORT` | `8081` | port to listen on; 0 picks a free one |"
    assert row in settings_table()
