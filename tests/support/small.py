"""Penstock with small caches: a few thousand values fill them, which takes a tenth of the time.

As a program, it is `penstock`.
"""

import sys

import penstock.service.policies as policies
import penstock.service.prepared as prepared
import penstock.store.sqlite.file as file
import penstock.store.sqlite.rows as rows
from penstock.cli import main

KEPT = 1_000
"""Requests, keys and items."""

PAGES_KIB = 256

if __name__ == "__main__":
    for module in (policies, prepared, rows):
        setattr(module, "KEPT", KEPT)  # noqa: B010 - they are declared as final
    setattr(file, "CACHE_KIB", PAGES_KIB)  # noqa: B010
    sys.exit(main())
