"""Which files rules come from, and how they are put together."""

import os
from pathlib import Path

import pytest
from penstock.config.problems import RulesError
from penstock.config.rules import RulesSource
from penstock.core.foreign_text import escape


def write(folder: Path, **texts: str) -> Path:
    """Write files `name.yaml`."""
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def domains(folder: Path, *, ignore_dot_files: bool = True) -> list[str]:
    return sorted(RulesSource(folder, ignore_dot_files).load().rules)


def errors_of(source: RulesSource) -> list[str]:
    with pytest.raises(RulesError) as caught:
        source.load()
    return [line.replace(f"{source.path}/", "") for line in str(caught.value).splitlines()]


def config_map(folder: Path, version: str, **texts: str) -> Path:
    """Lay files out as Kubernetes does: links into `..data`, which links to a dated folder."""
    dated = folder / f"..{version}"
    dated.mkdir(parents=True)
    write(dated, **texts)
    fresh = folder / "..data_tmp"
    fresh.symlink_to(dated.name)
    fresh.rename(folder / "..data")
    for name in texts:
        link = folder / f"{name}.yaml"
        if not link.is_symlink():
            link.symlink_to(f"..data/{name}.yaml")
    return folder


def test_a_directory_is_read_recursively(tmp_path: Path) -> None:
    """Every file counts, whatever its name ends with and however deep."""
    (tmp_path / "x/y").mkdir(parents=True)
    write(tmp_path, a="domain: a\n")
    write(tmp_path / "x/y", b="domain: b\n")
    (tmp_path / "x/plain").write_text("domain: c\n")
    assert domains(tmp_path) == ["a", "b", "c"]


@pytest.mark.parametrize(("ignored", "found"), [(True, ["a"]), (False, ["a", "b", "c"])])
def test_dot_files_are_skipped_or_not(tmp_path: Path, ignored: bool, found: list[str]) -> None:
    """Files and folders alike."""
    write(tmp_path, a="domain: a\n")
    (tmp_path / ".b").write_text("domain: b\n")
    (tmp_path / ".folder").mkdir()
    write(tmp_path / ".folder", c="domain: c\n")
    assert domains(tmp_path, ignore_dot_files=ignored) == found


@pytest.mark.parametrize("ignored", [True, False])
def test_a_config_map_loads_each_file_once(tmp_path: Path, ignored: bool) -> None:
    """Its files have three names each, and count under the plain one."""
    config_map(tmp_path, "2026_01", a="domain: a\n", b="domain: b\n")
    source = RulesSource(tmp_path, ignored)
    assert source.files() == [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    assert sorted(source.load().rules) == ["a", "b"]


def test_a_link_up_the_tree_has_an_end(tmp_path: Path) -> None:
    """A folder that holds itself is entered once."""
    write(tmp_path, a="domain: a\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/up").symlink_to(tmp_path)
    assert domains(tmp_path) == ["a"]


def test_a_directory_without_files_is_an_error(tmp_path: Path) -> None:
    """One with nothing but dot files has none, too."""
    (tmp_path / ".hidden").write_text("domain: a\n")
    assert errors_of(RulesSource(tmp_path)) == [f"{tmp_path}: the directory has no rules files"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nowhere.yaml", "there is no such file or directory"),
        ("file/below", "cannot be read: Not a directory"),
        ("x" * 300, "cannot be read: File name too long"),
        ("nul\x00", "cannot be read: embedded null byte"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
    ],
)
def test_a_path_that_cannot_be_read_says_why(tmp_path: Path, name: str, problem: str) -> None:
    """The message begins with the path."""
    (tmp_path / "file").write_text("domain: a\n")
    (tmp_path / "loop").symlink_to("loop")
    path = tmp_path / name
    with pytest.raises(RulesError) as caught:
        RulesSource(path).load()
    assert str(caught.value) == f"{escape(str(path))}: {problem}"


def test_what_cannot_be_read_in_a_directory_is_an_error(tmp_path: Path) -> None:
    """A link to nowhere and a pipe are told about; neither is waited for."""
    write(tmp_path, good="domain: a\n")
    (tmp_path / "link.yaml").symlink_to("gone.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    assert errors_of(RulesSource(tmp_path)) == [
        "link.yaml: there is no such file or directory",
        "pipe.yaml: cannot be read: not a regular file",
    ]


def test_a_file_that_is_not_utf_8_has_its_line(tmp_path: Path) -> None:
    """Such as one saved in Latin-1."""
    (tmp_path / "a.yaml").write_bytes(b"domain: a\n# caf\xe9\n")
    assert errors_of(RulesSource(tmp_path)) == [
        "a.yaml:2: error loading config file: not UTF-8 (invalid continuation byte)"
    ]


def test_a_domain_in_two_files_is_an_error_in_the_second(tmp_path: Path) -> None:
    """Files are read in order of name."""
    write(tmp_path, b="# second\ndomain: d\n", a="domain: d\n", c="domain: e\n")
    assert errors_of(RulesSource(tmp_path)) == ["b.yaml:2: duplicate domain 'd' in config file"]


def test_merged_domains_span_files(tmp_path: Path) -> None:
    """With MERGE_DOMAIN_CONFIG the descriptors of all files count."""
    rule = "rate_limit: {unit: day, requests_per_unit: 1}"
    write(
        tmp_path,
        a=f"domain: d\ndescriptors: [{{key: a, {rule}}}]\n",
        b=f"domain: d\ndescriptors: [{{key: b, {rule}}}]\n",
        c="domain: e\n",
    )
    rules = RulesSource(tmp_path, merge_domains=True).load().rules
    assert sorted(rules) == ["d", "e"]
    assert [node.key for node in rules["d"].children.nodes] == ["a", "b"]
    assert rules["d"].match((("b", "x"),)) is not None


def test_duplicates_across_merged_files_are_named_at_the_second_place(tmp_path: Path) -> None:
    """The file and line of the later one."""
    write(
        tmp_path,
        a="domain: d\ndescriptors:\n  - {key: k, value: v}\n",
        b="domain: d\n\ndescriptors:\n  - {key: other}\n  - {key: k, value: v}\n",
    )
    assert errors_of(RulesSource(tmp_path, merge_domains=True)) == [
        "b.yaml:5: duplicate descriptor composite key 'd.k_v'"
    ]


def test_all_errors_of_all_files_are_told_at_once_in_order(tmp_path: Path) -> None:
    """Sorted by file and line, whatever kind they are."""
    write(
        tmp_path,
        c="domain: [\n",
        b="domain: d\ndescriptors:\n"
        "  - {key: k, rate_limit: {unit: foo}}\n  - {}\n" + "  # pad\n" * 7 + "  - {keyy: k}\n",
        a="domain: d\ndescriptors: [{key: a}, {key: a}]\n",
        good="domain: good\n",
    )
    assert errors_of(RulesSource(tmp_path)) == [
        "a.yaml:2: duplicate descriptor composite key 'd.a'",
        "b.yaml:1: duplicate domain 'd' in config file",
        "b.yaml:3: invalid rate limit unit 'foo'",
        "b.yaml:4: descriptor has empty key",
        "b.yaml:12: config error, unknown key 'keyy'",
        "b.yaml:12: descriptor has empty key",
        "c.yaml:2: error loading config file: did not find expected node content",
    ]


def test_the_example_rules_load_without_a_warning() -> None:
    """They are what the README shows."""
    example = Path(__file__).parents[3] / "deploy/config/example.yaml"
    loaded = RulesSource(example).load()
    assert list(loaded.rules) == ["example"]
    assert loaded.warnings == ()
