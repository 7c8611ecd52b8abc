"""`python3 tests`: installs what is needed, and runs all tests.

Arguments go to pytest; without any, the coverage of the core is checked too.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "server"))

from install import VENV, install, pip  # noqa: E402 - found through the path above

# The independent client of the black-box tests. Its import package has the name of Envoy's wheel,
# so it lives apart, and only a process of its own sees it.
XDS_PROTOS = VENV / "xds-protos"

if __name__ == "__main__":
    python = install("test")
    if not XDS_PROTOS.exists():
        pip(python, "install", "--no-deps", "--target", str(XDS_PROTOS), "xds-protos")
    arguments = sys.argv[1:] or ["--cov", "--cov-report=term"]
    os.chdir(ROOT)
    os.execv(python, [str(python), "-m", "pytest", *arguments])  # noqa: S606 - our own command
