"""`python3 server`: installs what is needed, and runs the server on its embedded store.

Arguments go to `penstock serve`; without any, it serves the example rules.
"""

import os
import sys

from install import BIN, ROOT, install

if __name__ == "__main__":
    install()
    arguments = sys.argv[1:] or ["--config", str(ROOT / "deploy/config/example.yaml")]
    os.execv(BIN / "penstock", ["penstock", "serve", *arguments])  # noqa: S606 - our own command
