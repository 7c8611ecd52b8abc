"""The script that completes `penstock` in bash. No I/O here."""

import shlex
from collections.abc import Iterable
from typing import Final

from penstock.cli.completion_words import Command, Value

FILES: Final = ":files"
"""Stands for the names of files, where words could be. No word begins with a colon."""

# Works in bash 3.2, too, which macOS has.
_SCRIPT: Final = """\
# Completes penstock in bash: source <(penstock completion bash)

_penstock_commands() {{
    case $1 in
{commands}
    esac
}}

_penstock_argument() {{
    case $1 in
{arguments}
    esac
}}

_penstock_flags() {{
    case $1 in
{flags}
    esac
}}

# What follows a flag. Fails for a flag that stands alone.
_penstock_value() {{
    case $1 in
{values}
        *) return 1 ;;
    esac
}}

_penstock() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} command="" flag="" words="" word index first=1
    COMPREPLY=()
    # The words that name the command. bash splits `--flag=value` into three words.
    while [ "$first" -lt "$COMP_CWORD" ]; do
        word=${{COMP_WORDS[first]}}
        case " $(_penstock_commands "$command") " in
            *" $word "*) command="${{command:+$command }}$word" first=$((first + 1)) ;;
            *) break ;;
        esac
    done
    for ((index = first; index < COMP_CWORD; index++)); do
        word=${{COMP_WORDS[index]}}
        if [ "$word" = "=" ]; then
            continue
        elif _penstock_value "$command $word" >/dev/null; then
            flag=$word
        else
            flag=""
        fi
    done
    [ "$cur" = "=" ] && cur=""
    if [ -n "$flag" ]; then
        words=$(_penstock_value "$command $flag")
    elif [ "${{cur:0:1}}" = "-" ]; then
        words=$(_penstock_flags "$command")
    else
        words=$(_penstock_commands "$command")$(_penstock_argument "$command")
    fi
    if [ "$words" = "{files}" ]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$cur")
    else
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$words" -- "$cur")
    fi
}}

complete -F _penstock penstock
"""


def write(commands: Iterable[Command]) -> str:
    names, arguments, flags, values = [], [], [], []
    for command in commands:
        path = " ".join(command.path)
        if command.commands:
            names.append(_case(path, " ".join(command.commands)))
        if command.arguments and (words := _words(command.arguments[0])):
            # Later arguments are names, which nobody can complete.
            arguments.append(_case(path, words))
        flags.append(_case(path, " ".join(name for flag in command.flags for name in flag.names)))
        values += [
            _case(f"{path} {name}", _words(flag.value))
            for flag in command.flags
            for name in flag.names
            if flag.value is not None
        ]
    parts = {"commands": names, "arguments": arguments, "flags": flags, "values": values}
    return _SCRIPT.format(files=FILES, **{name: "\n".join(part) for name, part in parts.items()})


def _words(value: Value) -> str:
    return FILES if value.is_file else " ".join(value.choices)


def _case(pattern: str, words: str) -> str:
    return f"        {shlex.quote(pattern)}) echo {shlex.quote(words)} ;;"
