"""Reads `grpc-timeout`: how long a client waits for its answer."""

import re
from typing import Final

_TIMEOUT: Final = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
"""At most 8 digits and a unit, by the gRPC protocol."""

_UNIT_S: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def read_timeout_s(text: str) -> float:
    """The seconds of a `grpc-timeout`; ValueError if it is not one."""
    found = _TIMEOUT.fullmatch(text)
    if found is None:
        raise ValueError("not a grpc-timeout")
    return int(found[1]) * _UNIT_S[found[2]]
