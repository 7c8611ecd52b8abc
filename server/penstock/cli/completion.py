"""`penstock completion`: a script that completes commands, flags and values in a shell."""

import argparse
from importlib import import_module
from typing import Final

from penstock.cli.actions import set_command
from penstock.cli.parser import Parser

SHELLS: Final = ("bash", "zsh", "fish")

EXAMPLES: Final = """\
The script is made from the commands and flags of this version: print it again after an upgrade.

examples:
  source <(penstock completion bash)                            # in this shell
  penstock completion bash > ~/.local/share/bash-completion/completions/penstock
  penstock completion zsh > "${fpath[1]}/_penstock"             # a directory of $fpath
  penstock completion fish > ~/.config/fish/completions/penstock.fish
"""


def declare(parser: Parser) -> None:
    text = "Print a script that completes commands, flags and values of penstock in a shell."
    set_command(parser, _run, text, EXAMPLES)
    parser.add_argument("shell", choices=SHELLS, help="the shell that runs the script")


def _run(arguments: argparse.Namespace) -> int:
    # The scripts need every command, and no command needs the scripts.
    from penstock.cli import build_parser
    from penstock.cli.completion_words import find_commands

    script = import_module(f"penstock.cli.completion_{arguments.shell}")
    print(script.write(find_commands(build_parser())), end="")
    return 0
