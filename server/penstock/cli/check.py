"""`penstock check`: asks a server, as Envoy does."""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from penstock.cli.actions import set_command
from penstock.cli.answers import answer_lines, answer_values
from penstock.cli.output import print_json_line, print_lines, print_note
from penstock.cli.parser import Parser
from penstock.cli.progress import ProgressLine
from penstock.cli.terminal import is_terminal
from penstock.config.durations import parse_duration_ms
from penstock.core.limits import UINT32_MAX
from penstock.core.request import Descriptor, Request
from penstock.errors import ConfigError
from penstock.transport.client import (
    Answered,
    CallError,
    Client,
    UnknownMethodError,
    connect,
    full_address,
)
from penstock.transport.client_tls import ClientTls

UINT64_MAX: Final = 2**64 - 1
"""The largest amount of a descriptor."""

MAX_TIMEOUT_S: Final = 86_400
_DIGITS: Final = re.compile("[0-9]{1,10}")
_ENTRY: Final = re.compile(r"(?:\\[\\,]|[^,])*")
_ESCAPED: Final = re.compile(r"\\([\\,])")

EXAMPLES: Final = """\
In a value, write \\, for a comma. Write \\\\ for a backslash before a comma.

exit code: 0 OK, 1 over the limit (at least once), 2 error

examples:
  penstock check --domain example user=bob
  penstock check --domain example user=bob,path=/search     # one descriptor of two entries
  penstock check --domain example user=bob path=/search     # two descriptors
  penstock check --domain example --repeat 6 user=bob
  penstock check --domain example --peek user=bob           # look, and take nothing
  penstock check --domain example --charge 500 llm_user=bob # report 500 tokens as used
  penstock check --address rls.example:8081 --tls --domain example user=bob
  penstock check --cacert ca.crt --cert tls.crt --key tls.key --domain example user=bob
  penstock check --cacert ca.crt --server-name rls.example --domain example user=bob
"""


def declare(parser: Parser) -> None:
    set_command(
        parser, _run, "Send a rate limit request to a server, and show its answer.", EXAMPLES
    )
    parser.add_argument(
        "descriptors", metavar="KEY=VALUE[,KEY=VALUE...]", nargs="+", help="entries of a descriptor"
    )
    parser.add_argument("--domain", required=True, help="the domain of the rules")
    parser.add_argument(
        "--address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="HOST, HOST:PORT or unix:PATH (default: %(default)s, port 8081)",
    )
    parser.add_argument(
        "--timeout",
        default="5s",
        metavar="DURATION",
        help="time to wait for an answer (default: %(default)s)",
    )
    parser.add_argument(
        "--repeat", default="1", metavar="N", help="send the request N times (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print each answer as a line of JSON")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--hits", metavar="N", help="ask for N instead of 1; 0 checks for debt")
    amount.add_argument("--charge", metavar="N", help="report N as used (for metered rules)")
    amount.add_argument("--refund", metavar="N", help="give N back")
    parser.add_argument(
        "--peek", action="store_true", help="show what the answer would be, and take nothing"
    )
    _add_tls_flags(parser)


def _add_tls_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("TLS", "Each of these flags turns on TLS.")
    group.add_argument("--tls", action="store_true", help="trust the CAs of this system")
    group.add_argument("--cacert", metavar="FILE", help="PEM file with CAs to trust instead")
    group.add_argument("--cert", metavar="FILE", help="PEM file with the client's certificate")
    group.add_argument("--key", metavar="FILE", help="PEM file with the client's private key")
    group.add_argument(
        "--server-name",
        metavar="NAME",
        help="name in the server's certificate, if not the host of --address",
    )


def _run(arguments: argparse.Namespace) -> int:
    request = _request(arguments)
    repeat = _count("--repeat", arguments.repeat)
    timeout_s = _timeout_s(arguments.timeout)
    # An amount of 0 would make the rule metered, because Envoy asks so before a stream. A look must
    # not change what a rule does, so the command sends a peek instead.
    is_peek = arguments.peek or arguments.hits == "0"
    over, is_limited = False, False
    with (
        connect(full_address(arguments.address), timeout_s, _tls(arguments)) as client,
        ProgressLine(f"asking {arguments.address}", is_quiet=is_terminal(sys.stdout)) as progress,
    ):
        for number in range(repeat):
            progress.show(f"{number:,} of {repeat:,} requests answered")
            answered = _peek(client, request) if is_peek else client.ask(request)
            response = answered.response
            over = over or response.get("overall_code") != "OK"
            is_limited = is_limited or any(map(_names_a_limit, response.get("statuses", ())))
            if arguments.json:
                print_json_line(answer_values(request, answered))
            else:
                print_lines(answer_lines(arguments.descriptors, request, answered))
        progress.clear()
        if not is_limited and _is_unknown_domain(client, request):
            print_note(
                f"domain '{request.domain}': the server has no rules for this domain, so no limit "
                "applies"
            )
    return 1 if over else 0


def _peek(client: Client, request: Request) -> Answered:
    try:
        return client.peek(request)
    except UnknownMethodError as exc:
        raise CallError(f"this server does not support --peek and --hits 0: {exc}") from exc


def _names_a_limit(status: dict[str, Any]) -> bool:
    """`unlimited` counts as a limit, because a rule says so."""
    return "current_limit" in status or status.get("limit_remaining") == UINT32_MAX


def _is_unknown_domain(client: Client, request: Request) -> bool:
    try:
        return client.peek(request).domain_is_unknown
    except CallError:
        return False  # The request itself was answered. Not every server knows peeks.


def _request(arguments: argparse.Namespace) -> Request:
    for text in (arguments.domain, *arguments.descriptors):
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise ConfigError(f"'{text}' is not UTF-8, and gRPC carries only UTF-8") from exc
    if arguments.peek and (arguments.charge, arguments.refund) != (None, None):
        raise ConfigError("--peek takes nothing: leave out --charge and --refund")
    hits, asked = None, 0
    if arguments.charge is not None:
        hits = _count("--charge", arguments.charge, UINT64_MAX)
    elif arguments.refund is not None:
        hits = _count("--refund", arguments.refund, UINT64_MAX)
    elif arguments.hits == "0":
        hits = 0  # A request can't carry 0: there it means 1. A descriptor can.
    elif arguments.hits is not None:
        asked = _count("--hits", arguments.hits)
    descriptors = tuple(
        Descriptor(_entries(text), hits, refund=arguments.refund is not None)
        for text in arguments.descriptors
    )
    return Request(arguments.domain, descriptors, asked)


def _tls(arguments: argparse.Namespace) -> ClientTls | None:
    files = (arguments.cacert, arguments.cert, arguments.key)
    if not arguments.tls and (*files, arguments.server_name) == (None,) * 4:
        return None
    ca, cert, key = (None if file is None else Path(file) for file in files)
    return ClientTls(ca, cert, key, arguments.server_name or "")


def _entries(text: str) -> tuple[tuple[str, str], ...]:
    entries = []
    for part in _split(text):
        key, equals, value = _ESCAPED.sub(r"\1", part).partition("=")
        if not key or not equals:
            raise ConfigError(f"descriptor '{text}': write KEY=VALUE, with a comma between entries")
        entries.append((key, value))
    return tuple(entries)


def _split(text: str) -> Iterator[str]:
    """The parts between commas. A comma after a backslash does not separate parts."""
    begin = 0
    while begin <= len(text) and (part := _ENTRY.match(text, begin)):
        yield part[0]
        begin = part.end() + 1


def _timeout_s(text: str) -> float:
    try:
        timeout_s = parse_duration_ms(text) / 1000
    except ValueError as exc:
        raise ConfigError(f"--timeout: {exc}") from exc
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise ConfigError(f"--timeout: '{text}' must be above 0 and at most {MAX_TIMEOUT_S} s")
    return timeout_s


def _count(flag: str, text: str, most: int = UINT32_MAX) -> int:
    if not _DIGITS.fullmatch(text) or not 0 < int(text) <= most:
        raise ConfigError(f"{flag}: '{text}' is not a whole number from 1 to {most}")
    return int(text)
