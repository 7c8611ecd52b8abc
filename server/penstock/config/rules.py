"""All rules files of a path: found, read, and combined into domains."""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.config.entity_mappings import PlacedMapping, check_mappings
from penstock.config.problems import Problem, Problems
from penstock.config.rules_file import Placed, RulesFile, check_duplicates, read_rules_file
from penstock.core.mapping import Mappings
from penstock.core.rule_counting import RuleCounting
from penstock.core.rules import Children, Domain, Rules

MAX_BYTES: Final = 32 * 2**20
"""Bytes of one file. 100,000 rules need half of this."""

Fingerprint = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class LoadedRules:
    rules: Rules
    warnings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class RulesSource:
    """The place of the rules: one file, or every file below a directory."""

    path: Path
    ignore_dot_files: bool = True
    merge_domains: bool = False
    counting: RuleCounting = RuleCounting.STEADY

    def files(self, on_error: Callable[[OSError], None] = lambda _: None) -> list[Path]:
        """Every rules file, in the order of names. Follows symbolic links, which ConfigMaps use.

        A file with several names counts once, under the name with the shortest path.
        """
        if not os.path.isdir(self.path):  # noqa: PTH112 - Path.is_dir raises, say on long names
            return [self.path]
        found: dict[str, Path] = {}
        for path in sorted(self._walk(on_error), key=lambda path: (len(path.parts), path)):
            found.setdefault(os.path.realpath(path), path)
        return sorted(found.values())

    def _walk(self, on_error: Callable[[OSError], None]) -> Iterator[Path]:
        entered: set[str] = set()
        for folder, folders, names in os.walk(self.path, onerror=on_error, followlinks=True):
            if (real := os.path.realpath(folder)) in entered:
                folders.clear()  # a link to a directory above would never end
                continue
            entered.add(real)
            if self.ignore_dot_files:
                folders[:] = [name for name in folders if not name.startswith(".")]
                names = [name for name in names if not name.startswith(".")]
            yield from (Path(folder, name) for name in names)

    def fingerprint(self) -> Fingerprint:
        """A value that changes when a file is changed, added, removed or swapped."""
        found = []
        for path in self.files():
            try:
                now = path.stat()
            except (OSError, ValueError):
                found.append((str(path), 0, 0, 0))
            else:
                found.append((str(path), now.st_ino, now.st_mtime_ns, now.st_size))
        return tuple(found)

    def load(self) -> LoadedRules:
        """Read all files again. RulesError has all errors, if there are any."""
        problems = Problems()

        def cannot_list(exc: OSError) -> None:
            problems.error(str(exc.filename), 0, f"cannot be read: {exc.strerror}")

        paths = self.files(cannot_list)
        if not paths and not problems.errors_found:
            problems.error(str(self.path), 0, "the directory has no rules files")
        files = [f for path in paths if (f := self._read(path, problems))]
        return combine(files, problems, merge_domains=self.merge_domains)

    def _read(self, path: Path, problems: Problems) -> RulesFile | None:
        try:
            # To read a pipe is to wait for its writer. A person may name a pipe, but a pipe in a
            # directory is not a rules file.
            if path != self.path and not stat.S_ISREG(path.stat().st_mode):
                raise OSError(0, "not a regular file")
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                raise OSError(0, f"the file is larger than {MAX_BYTES // 2**20} MiB")
            text = data.decode()
        except FileNotFoundError:
            problems.error(str(path), 0, "there is no such file or directory")
        except OSError as exc:
            problems.error(str(path), 0, f"cannot be read: {exc.strerror}")
        except UnicodeDecodeError as exc:
            line = exc.object[: exc.start].count(b"\n") + 1
            text = f"error loading config file: not UTF-8 ({exc.reason})"
            problems.error(str(path), line, text)
        except ValueError as exc:
            problems.error(str(path), 0, f"cannot be read: {exc}")
        else:
            return read_rules_file(str(path), text, problems, self.counting)
        return None


def combine(files: list[RulesFile], problems: Problems, *, merge_domains: bool) -> LoadedRules:
    """Make domains of all files. RulesError has all errors, also those found before."""
    rules = _assemble(files, merge_domains)
    problems.raise_errors()
    return LoadedRules(rules, problems.warnings)


def _assemble(files: list[RulesFile], merge_domains: bool) -> Rules:
    descriptors: dict[str, list[Placed]] = {}
    mappings: dict[str, list[PlacedMapping]] = {}
    for file in files:
        if file.domain in descriptors and not merge_domains:
            file.file.error(file.source, f"duplicate domain '{file.domain}' in config file")
            continue
        descriptors.setdefault(file.domain, []).extend(file.descriptors)
        mappings.setdefault(file.domain, []).extend(file.mappings)
    for name, level in descriptors.items():
        check_duplicates(level, f"{name}.")
        check_mappings(mappings[name])
    return {
        name: Domain(
            name,
            Children(placed.node for placed in level),
            Mappings(name, {one.mapping.keys: one.mapping for one in mappings[name]}),
        )
        for name, level in descriptors.items()
    }
