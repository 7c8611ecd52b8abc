"""The script that completes `penstock` in fish. No I/O here."""

from collections.abc import Iterable
from typing import Final

from penstock.cli.completion_words import Command, Flag, Value

_HEAD: Final = """\
# Completes penstock in fish: put this file into ~/.config/fish/completions.

# Whether the command line has this command. The last argument says how many words the command has.
function __penstock_at
    set -l typed (commandline -opc)[2..-1]
    set -l given $argv[-1]
    set -l wanted $argv[1..-2]
    test (count $typed) -ge $given; or return 1
    for index in (seq $given)
        test "$typed[$index]" = "$wanted[$index]"; or return 1
    end
end

# Whether the command line has this group of commands, and no command of the group yet.
function __penstock_before
    __penstock_at $argv; and test (count (commandline -opc)) -eq (math $argv[-1] + 1)
end

complete -c penstock -f
"""


def write(commands: Iterable[Command]) -> str:
    lines = [_HEAD]
    for command in commands:
        here = f"{' '.join((*command.path, str(len(command.path))))}"
        lines += [
            _line(f"__penstock_before {here}", ["-a", name], text)
            for name, text in command.commands.items()
        ]
        # The flags of a command come after its name.
        condition = "__penstock_before" if command.commands else "__penstock_at"
        lines += [_line(f"{condition} {here}", _flag(f), f.text) for f in command.flags]
        if command.arguments and (words := _value(command.arguments[0])):
            lines.append(_line(f"__penstock_at {here}", words, ""))
    return "\n".join(lines) + "\n"


def _line(condition: str, words: list[str], text: str) -> str:
    told = ["-d", _quote(text)] if text else []
    return " ".join(["complete -c penstock -n", _quote(condition), *words, *told])


def _flag(flag: Flag) -> list[str]:
    words = []
    for name in flag.names:
        words += ["-l", name[2:]] if name.startswith("--") else ["-s", name[1:]]
    if flag.value is None:
        return words
    # -x: no files, unless -F offers them.
    return [*words, "-r" if flag.value.is_file else "-x", *_value(flag.value)]


def _value(value: Value) -> list[str]:
    if value.is_file:
        return ["-F"]
    return ["-a", _quote(" ".join(value.choices))] if value.choices else []


def _quote(text: str) -> str:
    """In the quotes of fish, only these two have a meaning."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
