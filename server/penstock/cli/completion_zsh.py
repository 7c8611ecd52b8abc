"""The script that completes `penstock` in zsh. No I/O here."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.cli.completion_words import Command, Flag, Value

_SCRIPT: Final = """\
#compdef penstock
# Completes penstock in zsh: put this file into a directory of $fpath, or source it after compinit.

_penstock() {{
    local command="" flag="" word
    local -a found=()
    integer first=2 index
    # The words that name the command.
    while (( first < CURRENT )); do
        word=$words[first]
        case "$command/$word" in
            {groups}) command="${{command:+$command }}$word" ;;
            *) break ;;
        esac
        (( first++ ))
    done
    for (( index = first; index < CURRENT; index++ )); do
        flag=""
        case "$command $words[index]" in
            {valued}) flag=$words[index] ;;
        esac
    done
    if [[ -z $flag && $PREFIX == --*=* ]]; then
        flag=${{PREFIX%%=*}}
        compset -P '*='
    fi
    if [[ -n $flag ]]; then
        case "$command $flag" in
{values}
        esac
    elif [[ $PREFIX == -* ]]; then
        case $command in
{flags}
        esac
        _describe -o flag found
    else
        case $command in
{words}
        esac
    fi
}}

if [[ $funcstack[1] == _penstock ]]; then
    _penstock "$@"
else
    compdef _penstock penstock
fi
"""


def write(commands: Iterable[Command]) -> str:
    all_commands = list(commands)
    groups = [
        shlex.quote(f"{' '.join(command.path)}/{name}")
        for command in all_commands
        for name in command.commands
    ]
    valued, values, flags, words = [], [], [], []
    for command in all_commands:
        path = " ".join(command.path)
        for flag in command.flags:
            if flag.value is not None:
                named = [shlex.quote(f"{path} {name}") for name in flag.names]
                valued += named
                if complete := _complete(flag.value):
                    values.append(f"            {'|'.join(named)}) {complete} ;;")
        flags.append(
            f"            {shlex.quote(path)}) found=({_described(_texts(command.flags))}) ;;"
        )
        words.append(f"            {shlex.quote(path)}) {_first(command)} ;;")
    return _SCRIPT.format(
        groups="|".join(groups),
        valued="|".join(valued),
        values="\n".join(values),
        flags="\n".join(flags),
        words="\n".join(words),
    )


def _first(command: Command) -> str:
    if command.commands:
        return f"found=({_described(command.commands)}); _describe command found"
    return (_complete(command.arguments[0]) if command.arguments else "") or ":"


def _texts(flags: Iterable[Flag]) -> dict[str, str]:
    return {name: flag.text for flag in flags for name in flag.names}


def _described(texts: Mapping[str, str]) -> str:
    return " ".join(shlex.quote(f"{name}:{text}") for name, text in texts.items())


def _complete(value: Value) -> str:
    if value.is_file:
        return "_files"
    return f"compadd -- {shlex.join(value.choices)}" if value.choices else ""
