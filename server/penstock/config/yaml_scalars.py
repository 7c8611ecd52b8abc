"""Says which plain scalars are numbers, booleans or null. A plain scalar is written without quotes.

The law: the same scalars as for the reference server, which reads its files with go-yaml 2. PyYAML
follows YAML 1.1 to the letter. There, `1:30` is the number 90, `1e3` is a text, and `y` is a text.
"""

import re
from typing import Any, ClassVar, Final

import yaml

BOOL: Final = "tag:yaml.org,2002:bool"
FLOAT: Final = "tag:yaml.org,2002:float"
INT: Final = "tag:yaml.org,2002:int"
MERGE: Final = "tag:yaml.org,2002:merge"
NULL: Final = "tag:yaml.org,2002:null"

_TRUE: Final = ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"]
_FALSE: Final = ["n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"]

TRUTHS: Final = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
"""What each boolean means. Other spellings, such as `tRue`, are texts."""

_WHOLE: Final = re.compile(
    r"[-+]?(?P<octal>0_*[0-7][0-7_]*)\Z"
    r"|[-+]?(?:0x_*[0-9a-fA-F][0-9a-fA-F_]*|0o_*[0-7][0-7_]*|0b_*[01][01_]*|0_*|[1-9][0-9_]*)\Z"
)
_FLOAT: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?\Z"
    r"|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
)
_RESOLVERS: Final = [
    (INT, _WHOLE, "-+0123456789"),
    (FLOAT, _FLOAT, "-+.0123456789"),
    (BOOL, re.compile(rf"(?:{'|'.join(TRUTHS)})\Z"), "yYnNtTfFoO"),
    (NULL, re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]),
    (MERGE, re.compile(r"<<\Z"), "<"),
]


def whole_number(text: str) -> int | None:
    """The value of a whole number; None if the text is not a whole number."""
    found = _WHOLE.match(text)
    if found is None:
        return None
    plain = text.replace("_", "")
    try:
        return int(plain, 8) if found["octal"] else int(plain, 0)
    except ValueError:
        return None  # Python refuses more than 4,300 digits


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # C, without types
    """PyYAML's parser, with the scalars of go-yaml."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, Any]]]] = {}


for _tag, _pattern, _firsts in _RESOLVERS:
    for _first in _firsts:
        Loader.yaml_implicit_resolvers.setdefault(_first, []).append((_tag, _pattern))
