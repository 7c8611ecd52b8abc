"""Penstock with small caches: a few thousand values fill them, which takes a tenth of the time.

As a program, it is `penstock`.
"""

import sys

import penstock.service.policies
import penstock.service.prepared
import penstock.store.sqlite.file
import penstock.store.sqlite.rows
import pytest
from penstock.cli import main

KEPT = 1_000
"""Requests, keys and items."""

PAGES_KIB = 256

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        for module in (
            penstock.service.policies,
            penstock.service.prepared,
            penstock.store.sqlite.rows,
        ):
            patch.setattr(module, "KEPT", KEPT)
        patch.setattr(penstock.store.sqlite.file, "CACHE_KIB", PAGES_KIB)
        sys.exit(main())
