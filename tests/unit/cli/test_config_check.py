"""`penstock`, and `penstock config check`, as a user types them."""

import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from penstock.config.flags import DECLARED

from tests.support.processes import PATIENCE_S, PENSTOCK
from tests.unit.cli.command import run, write_rules


def test_version_is_that_of_the_package(tmp_path: Path) -> None:
    """For bug reports."""
    ran = run("--version", cwd=tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, f"penstock {version('penstock-ratelimit')}\n", "")


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ((), "penstock check --domain example user=bob"),
        (("serve",), "penstock serve --config rules.yaml"),
        (("check",), "penstock check --domain example --repeat 6 user=bob"),
        (("config", "check"), "penstock config check --print rules/"),
    ],
)
def test_help_has_examples(tmp_path: Path, command: tuple[str, ...], example: str) -> None:
    """At every level, on standard output."""
    ran = run(*command, "--help", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert example in ran.out


def test_help_of_serve_names_every_flag_and_variable(tmp_path: Path) -> None:
    """It derives from the declaration."""
    shown = run("serve", "--help", cwd=tmp_path).out
    words = " ".join(shown.split())
    missing = [s.name for s in DECLARED if s.flag not in words or f"[{s.env}]" not in words]
    assert missing == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("start",), "there is no 'start'"),
        ((), "the following arguments are required: COMMAND"),
        (("serve", "--prot", "1"), "unrecognized arguments: --prot 1"),
        (("config",), "the following arguments are required: COMMAND"),
        (("config", "check"), "the following arguments are required: PATH"),
    ],
)
def test_a_command_that_does_not_exist_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    """With exit code 2 and what was wrong."""
    ran = run(*arguments, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_good_rules_exit_0(tmp_path: Path) -> None:
    """With a word on what was read."""
    write_rules(tmp_path)
    ran = run("config", "check", "rules.yaml", cwd=tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, "rules.yaml: rules of 1 domain, no errors\n", "")


def test_print_shows_the_effective_rules(tmp_path: Path) -> None:
    """A line each, and nothing else on standard output."""
    write_rules(tmp_path)
    ran = run("config", "check", "--print", "rules.yaml", cwd=tmp_path)
    off = "shadow_mode: false, quota_mode: false"
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"d.few: unit=HOUR requests_per_unit=2, {off}, name: two",
        f"d.many: unit=HOUR requests_per_unit=100, {off}",
        f"d.metered: unit=HOUR requests_per_unit=100, {off}, on_exceed: debt",
        f"d.odd: unit=UNKNOWN requests_per_unit=10, {off}, period: 1m30s",
        f"d.huge: unit=YEAR requests_per_unit=4294967295, {off}, window: calendar, timezone: UTC",
        f"d.free: unit=UNKNOWN requests_per_unit=0, {off}, unlimited: true",
    ]


def test_print_shows_how_a_server_with_this_setting_counts(tmp_path: Path) -> None:
    """The rules are those that are in force there."""
    write_rules(tmp_path)
    ran = run("config", "check", "--print", "--counting", "reference", "rules.yaml", cwd=tmp_path)
    *limited, huge, free = ran.out.splitlines()
    assert all(", window: fixed, carry_debt: false" in line for line in limited)
    assert ", window: calendar, timezone: UTC" in huge
    assert "window" not in free


def test_every_error_of_every_file_is_told(tmp_path: Path) -> None:
    """On standard error, sorted, with exit code 1."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "b.yaml").write_text("domain: b\ndescriptors:\n  - {}\n  - {kee: a}\n")
    (rules / "a.yaml").write_text("domain: [\n")
    (rules / "good.yaml").write_text("domain: good\n")
    ran = run("config", "check", "rules", cwd=tmp_path)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines() == [
        "rules/a.yaml:2: error loading config file: did not find expected node content",
        "rules/b.yaml:3: descriptor has empty key",
        "rules/b.yaml:4: config error, unknown key 'kee'",
        "rules/b.yaml:4: descriptor has empty key",
        "4 errors: these rules can't be used",
    ]


def test_a_single_error_is_one(tmp_path: Path) -> None:
    """Also for a path that does not exist."""
    ran = run("config", "check", "nowhere", cwd=tmp_path)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines() == [
        "nowhere: there is no such file or directory",
        "1 error: these rules can't be used",
    ]


def test_warnings_go_to_standard_error_and_exit_0(tmp_path: Path) -> None:
    """They do not disturb who reads the output."""
    write_rules(tmp_path, "domain: d\nunit: day\n")
    ran = run("config", "check", "--print", "rules.yaml", cwd=tmp_path)
    assert (ran.code, ran.out) == (0, "")
    assert (
        ran.err == "rules.yaml:2: 'unit' has no meaning in this place, and is ignored (warning)\n"
    )


@pytest.mark.parametrize(
    ("flags", "env"),
    [(("--merge-domain-config",), {}), ((), {"MERGE_DOMAIN_CONFIG": "true"})],
)
def test_domains_are_merged_as_the_server_would(
    tmp_path: Path, flags: tuple[str, ...], env: dict[str, str]
) -> None:
    """By flag or variable; without it the second file is refused."""
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(f"domain: d\ndescriptors: [{{key: {name}}}]\n")
    assert run("config", "check", ".", cwd=tmp_path).code == 1
    assert run("config", "check", *flags, ".", cwd=tmp_path, env=env).code == 0


def test_a_reader_that_stops_reading_is_no_fault(tmp_path: Path) -> None:
    """As with `| head`: no traceback."""
    many = "".join(f"  - {{key: k{i}, rate_limit: {{unit: day}}}}\n" for i in range(2000))
    write_rules(tmp_path, "domain: d\ndescriptors:\n" + many)
    command = [str(PENSTOCK), "config", "check", "--print", "rules.yaml"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 141


def test_json_has_what_was_found(tmp_path: Path) -> None:
    """Under the same keys, whether the rules can be used or not."""
    write_rules(tmp_path)
    check = ("config", "check", "--json")
    ran = run(*check, "rules.yaml", cwd=tmp_path)
    good = {"usable": True, "errors": [], "warnings": [], "domains": ["d"], "rules": None}
    assert (ran.code, json.loads(ran.out), ran.err) == (0, good, "")
    ran = run(*check, "--print", "rules.yaml", cwd=tmp_path)
    assert json.loads(ran.out)["rules"][0].startswith("d.few: unit=HOUR requests_per_unit=2")
    write_rules(tmp_path, "domain: d\ndescriptor: []\n")
    ran = run(*check, "rules.yaml", cwd=tmp_path)
    error = {"file": "rules.yaml", "line": 2, "text": "config error, unknown key 'descriptor'"}
    bad = {"usable": False, "errors": [error], "warnings": [], "domains": [], "rules": None}
    assert (ran.code, json.loads(ran.out), ran.err) == (1, bad, "")
