"""`penstock completion`, in real shells."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.cli import build_parser, main
from penstock.cli.completion_words import find_commands

from tests.support.processes import PATIENCE_S, PENSTOCK
from tests.support.terminals import Terminal, without_sequences

SHELLS = [
    pytest.param(
        shell,
        marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"Debian package {shell}"),
    )
    for shell in ("bash", "zsh", "fish")
]

ASK_BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_penstock
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        (tmp_path / f"script.{shell}").write_text(capsys.readouterr().out)
    (tmp_path / "policy-1.yaml").touch()
    (tmp_path / "policy 2.yaml").touch()
    return tmp_path


def ask(shell: str, folder: Path, *words: str) -> set[str]:
    """What a shell offers for the last word."""
    script = str(folder / f"script.{shell}")
    if shell == "bash":
        command = ["bash", "--norc", "-c", ASK_BASH, "bash", script, *words]
    else:
        command = ["fish", "--no-config", "-c", f"source {script}; complete -C '{' '.join(words)}'"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return {line.partition("\t")[0] for line in done.stdout.splitlines() if line}


CASES = [
    (("penstock", "lim"), {"limits"}),
    (("penstock", "limits", ""), {"set", "show", "delete", "list"}),
    (("penstock", "limits", "set", "--res"), {"--resource"}),
    (("penstock", "limits", "set", "--resource", "x", "--ent"), {"--entity"}),
    (("penstock", "usage", "bob", "--window", ""), {"hour", "day", "month"}),
    (("penstock", "usage", "--window", "day", "--chi"), {"--children"}),
    (("penstock", "completion", ""), {"bash", "zsh", "fish"}),
    (("penstock", "serve", "--log-level", "w"), {"warn"}),
    (("penstock", "policy", "diff", "-f", "pol"), {"policy-1.yaml", "policy 2.yaml"}),
    (("penstock", "config", "check", "policy-"), {"policy-1.yaml"}),
    (("penstock", "entity", "show", ""), set()),
    (("penstock", "limits", "set", "--resource", ""), set()),
    # A value that is also a command is no command.
    (("penstock", "limits", "show", "--entity", "list", "--js"), {"--json"}),
]


@pytest.mark.parametrize("shell", [one for one in SHELLS if one.values[0] != "zsh"])
def test_a_shell_offers_what_the_parser_declares(shell: str, scripts: Path) -> None:
    """Commands, flags, choices and files; and nothing where nobody can know."""
    for words, expected in CASES:
        found = ask(shell, scripts, *words)
        unescaped = {name.replace("\\ ", " ") for name in found}
        assert unescaped == expected, (shell, words)


@pytest.mark.parametrize("shell", [one for one in SHELLS if one.values[0] == "bash"])
def test_bash_completes_values_after_an_equals_sign(shell: str, scripts: Path) -> None:
    """It splits such a flag into three words."""
    assert ask(shell, scripts, "penstock", "usage", "--window", "=", "d") == {"day"}
    assert ask(shell, scripts, "penstock", "usage", "--window", "=") == {"hour", "day", "month"}


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal(200, 50)
    yield terminal
    terminal.close()


STARTS = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}
PREPARE = {
    "bash": "bind 'set enable-bracketed-paste off'; source script.bash",
    "zsh": "autoload -U compinit; compinit -u -D; source ./script.zsh",
}


@pytest.mark.parametrize("shell", [one for one in SHELLS if one.values[0] != "fish"])
def test_the_tab_key_completes(shell: str, scripts: Path, terminal: Terminal) -> None:
    """In an interactive shell: a command, a flag and a value. Enter runs what was completed."""
    env = {
        "HOME": str(scripts), "TERM": "xterm", "PATH": f"{PENSTOCK.parent}:{os.environ['PATH']}",
        "PENSTOCK_STORE": "sqlite:///none.db",
    }  # fmt: skip
    tty = terminal.theirs
    with subprocess.Popen(
        STARTS[shell], cwd=scripts, env=env, stdin=tty, stdout=tty, stderr=tty
    ) as process:
        # Not `ready` as it is typed, which the terminal echoes.
        terminal.press(f"{PREPARE[shell]}; PS1=rea''dy\r")
        terminal.read_until(lambda text: "ready" in text, "a prompt")
        terminal.press("penstock usa\tbob --win\tmon\t\r")
        # So much of the command line was right that the command looked for its store.
        message = "there is no such file"
        shown = terminal.read_until(lambda text: message in without_sequences(text), message)
        assert "--window" in without_sequences(shown)
        process.kill()


def test_every_flag_of_every_command_is_in_each_script(scripts: Path) -> None:
    """The scripts are made from the parser, so that a new flag can't be forgotten."""
    commands = list(find_commands(build_parser()))
    assert len(commands) > 40
    for shell in ("bash", "zsh", "fish"):
        text = (scripts / f"script.{shell}").read_text()
        for command in commands:
            for flag in command.flags:
                for name in flag.names:
                    assert (name if shell != "fish" else name.lstrip("-")) in text


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_one_that_its_shell_can_read(shell: str, scripts: Path) -> None:
    """It has no error in it, also in lines that no other test runs."""
    done = subprocess.run([shell, "-n", f"script.{shell}"], cwd=scripts, check=False)
    assert done.returncode == 0
