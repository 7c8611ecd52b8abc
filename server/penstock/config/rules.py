"""All rules files of a path: found, read, and put together into domains."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.config.problems import Problem, Problems, RulesError
from penstock.config.rules_file import Placed, RulesFile, check_duplicates, read_rules_file
from penstock.core.rules import Children, Domain, Rules

Fingerprint = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class LoadedRules:
    rules: Rules
    warnings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class RulesSource:
    """Where rules are: one file, or every file below a directory."""

    path: Path
    ignore_dot_files: bool = True
    merge_domains: bool = False

    def files(self) -> list[Path]:
        """Every rules file, in order of name, behind symbolic links too: ConfigMaps are made so."""
        if not self.path.is_dir():
            return [self.path]
        return sorted(self._walk())

    def _walk(self) -> Iterator[Path]:
        for folder, folders, names in os.walk(self.path, followlinks=True):
            if self.ignore_dot_files:
                folders[:] = [name for name in folders if not name.startswith(".")]
                names = [name for name in names if not name.startswith(".")]
            yield from (Path(folder, name) for name in names)

    def fingerprint(self) -> Fingerprint:
        """Something that differs when a file was changed, added, removed or swapped."""
        found = []
        for path in self.files():
            try:
                stat = path.stat()
            except OSError:
                found.append((str(path), 0, 0, 0))
            else:
                found.append((str(path), stat.st_ino, stat.st_mtime_ns, stat.st_size))
        return tuple(found)

    def load(self) -> LoadedRules:
        """Read everything anew; RulesError, with all that is wrong, if it can't be used."""
        problems = Problems()
        if not self.path.exists():
            raise RulesError([Problem(str(self.path), 0, "there is no such file or directory")])
        paths = self.files()
        if not paths:
            raise RulesError([Problem(str(self.path), 0, "the directory has no rules files")])
        rules = self._assemble([f for path in paths if (f := _read(path, problems))])
        if problems.errors:
            raise RulesError(problems.errors)
        return LoadedRules(rules, tuple(problems.warnings))

    def _assemble(self, files: list[RulesFile]) -> Rules:
        descriptors: dict[str, list[Placed]] = {}
        for file in files:
            if file.domain in descriptors and not self.merge_domains:
                file.file.error(file.source, f"duplicate domain '{file.domain}' in config file")
                continue
            descriptors.setdefault(file.domain, []).extend(file.descriptors)
        for name, level in descriptors.items():
            check_duplicates(level, f"{name}.")
        return {
            name: Domain(name, Children(placed.node for placed in level))
            for name, level in descriptors.items()
        }


def _read(path: Path, problems: Problems) -> RulesFile | None:
    try:
        text = path.read_bytes().decode()
    except OSError as exc:
        problems.errors.append(Problem(str(path), 0, f"cannot be read: {exc.strerror}"))
    except UnicodeDecodeError as exc:
        problems.errors.append(Problem(str(path), 0, f"error loading config file: {exc}"))
    else:
        return read_rules_file(str(path), text, problems)
    return None
