"""`penstock check`: asks a server, as Envoy would."""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from penstock.cli.tables import print_lines
from penstock.config.durations import format_duration, parse_duration_ms
from penstock.core.limits import UINT32_MAX
from penstock.core.request import Descriptor, Request
from penstock.errors import ConfigError
from penstock.transport.client import ClientTls, connect

MAX_TIMEOUT_S: Final = 86_400
_DIGITS: Final = re.compile("[0-9]{1,10}")

EXAMPLES: Final = """\
exit code: 0 OK, 1 over the limit (at least once), 2 error

examples:
  penstock check --domain example user=bob
  penstock check --domain example user=bob,path=/search     # one descriptor of two entries
  penstock check --domain example user=bob path=/search     # two descriptors
  penstock check --domain example --repeat 6 user=bob
  penstock check --domain example --charge 500 llm_user=bob # report 500 tokens as used
  penstock check --address rls.example:8081 --tls --domain example user=bob
  penstock check --cacert ca.crt --cert tls.crt --key tls.key --domain example user=bob
  penstock check --cacert ca.crt --server-name rls.example --domain example user=bob
"""


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "check",
        help="send a request to a server",
        description="Send a rate limit request to a server, and show its answer.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "descriptors", metavar="KEY=VALUE[,KEY=VALUE...]", nargs="+", help="a descriptor's entries"
    )
    parser.add_argument("--domain", required=True, help="the domain of the rules")
    parser.add_argument(
        "--address", default="127.0.0.1:8081", help="HOST:PORT or unix:PATH (default: %(default)s)"
    )
    parser.add_argument("--timeout", default="5s", metavar="DURATION", help="default: %(default)s")
    parser.add_argument("--repeat", default="1", metavar="N", help="send the request N times")
    parser.add_argument("--json", action="store_true", help="print each response as a line of JSON")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--hits", metavar="N", help="ask for N instead of 1")
    amount.add_argument("--charge", metavar="N", help="report N as used, as debt if need be")
    amount.add_argument("--refund", metavar="N", help="give N back")
    _add_tls_flags(parser)
    parser.set_defaults(run=_run)


def _add_tls_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("TLS", "Each of these turns it on.")
    group.add_argument("--tls", action="store_true", help="trust the CAs of this system")
    group.add_argument("--cacert", metavar="FILE", help="trust these CAs instead, a PEM file")
    group.add_argument("--cert", metavar="FILE", help="the client's certificate, a PEM file")
    group.add_argument("--key", metavar="FILE", help="its private key, a PEM file")
    group.add_argument(
        "--server-name", metavar="NAME", help="whose certificate to expect, if not the address's"
    )


def _run(arguments: argparse.Namespace) -> int:
    request = _request(arguments)
    repeat = _count("--repeat", arguments.repeat)
    timeout_s = _timeout_s(arguments.timeout)
    over = False
    with connect(arguments.address, timeout_s, _tls(arguments)) as call:
        for _ in range(repeat):
            response = call(request)
            over = over or response.get("overall_code") != "OK"
            if arguments.json:
                print(json.dumps(response))  # in ASCII
            else:
                print_lines(_lines(arguments.descriptors, response))
    return 1 if over else 0


def _request(arguments: argparse.Namespace) -> Request:
    for text in (arguments.domain, *arguments.descriptors):
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise ConfigError(f"'{text}' is not UTF-8, which the wire carries") from exc
    hits = None
    if arguments.charge is not None:
        hits = _count("--charge", arguments.charge)
    elif arguments.refund is not None:
        hits = _count("--refund", arguments.refund)
    descriptors = tuple(
        Descriptor(_entries(text), hits, refund=arguments.refund is not None)
        for text in arguments.descriptors
    )
    asked = 0 if arguments.hits is None else _count("--hits", arguments.hits)
    return Request(arguments.domain, descriptors, asked)


def _tls(arguments: argparse.Namespace) -> ClientTls | None:
    files = (arguments.cacert, arguments.cert, arguments.key)
    if not arguments.tls and (*files, arguments.server_name) == (None,) * 4:
        return None
    ca, cert, key = (None if file is None else Path(file) for file in files)
    return ClientTls(ca, cert, key, arguments.server_name or "")


def _entries(text: str) -> tuple[tuple[str, str], ...]:
    entries = []
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise ConfigError(f"descriptor '{text}': write KEY=VALUE, with a comma between entries")
        entries.append((key, value))
    return tuple(entries)


def _timeout_s(text: str) -> float:
    try:
        timeout_s = parse_duration_ms(text) / 1000
    except ValueError as exc:
        raise ConfigError(f"--timeout: {exc}") from exc
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise ConfigError(f"--timeout: '{text}' is not above 0 and up to {MAX_TIMEOUT_S} s")
    return timeout_s


def _count(flag: str, text: str) -> int:
    if not _DIGITS.fullmatch(text) or not 0 < int(text) <= UINT32_MAX:
        raise ConfigError(f"{flag}: '{text}' is no whole number from 1 to {UINT32_MAX}")
    return int(text)


def _lines(descriptors: Sequence[str], response: dict[str, Any]) -> list[str]:
    lines = [response.get("overall_code", "UNKNOWN")]
    # Another server may answer with fewer.
    statuses = zip(descriptors, response.get("statuses", ()), strict=False)
    lines += [f"  {text}: {_describe(status)}" for text, status in statuses]
    headers = response.get("response_headers_to_add", ())
    lines += [f"  {header['key']}: {header.get('value', '')}" for header in headers]
    return lines


def _describe(status: dict[str, Any]) -> str:
    remaining = status.get("limit_remaining", 0)
    limit = status.get("current_limit")
    code = status.get("code", "UNKNOWN")
    if limit is None:
        return f"{code}, unlimited" if remaining == UINT32_MAX else f"{code}, no limit applies"
    per = limit.get("unit", "UNKNOWN").lower()
    rate = f"{limit.get('requests_per_unit', 0)} per {'period' if per == 'unknown' else per}"
    name = f" ({limit['name']})" if "name" in limit else ""
    seconds = float(status.get("duration_until_reset", "0s").removesuffix("s"))
    wait = format_duration(round(seconds * 1000))
    then = f"full in {wait}" if code == "OK" else f"try again in {wait}"
    return f"{code}, {remaining} left of {rate}{name}, {then}"
