"""The container image: its file held to the rest, and its command run."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from penstock.config.settings import Settings

from tests.e2e.image import (
    DOCKERFILE,
    RATELIMIT,
    ROOT,
    environment,
    instructions,
    run_ratelimit,
    said,
)
from tests.e2e.manifests import WORKLOADS
from tests.e2e.rls_client import XdsClient, entries

NOBODY = "65534:65534"
RULES = Path(__file__).parent / "rls.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Everything that is mounted becomes read-only, but for one folder, and what is no disk.
READ_ONLY = """
set -eu
mount --make-rprivate /
mount --bind "$0" "$0"
for point in $(cut -d ' ' -f 5 /proc/self/mountinfo); do
  case "$point" in "$0" | /proc* | /sys* | /dev*) ;; *) mount -o remount,bind,ro "$point" ;; esac
done
touch "$0/can-be-written"
if touch "$0/../can-be-written" 2>/dev/null; then exit 1; fi
exec "$@"
"""


def copied() -> list[tuple[str, str]]:
    """What comes from the repository, and where to."""
    pairs = []
    for name, arguments in instructions():
        words = [word for word in arguments.split() if not word.startswith("--chmod=")]
        if name == "COPY" and not words[0].startswith("--from="):
            pairs += [(source, words[-1]) for source in words[:-1]]
    return pairs


def test_image_is_built_from_files_that_exist() -> None:
    """All that is copied is there, and is let through to the build."""
    allowed = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()
    assert copied()
    for source, _ in copied():
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed


def test_image_has_the_package_with_what_sends_traces() -> None:
    """The extra is one that the package declares, and the command one that it installs."""
    build = next(rest for name, rest in instructions() if name == "RUN")
    assert build.endswith(" install --no-cache-dir --no-compile '.[otlp]'")
    assert "otlp" in PROJECT["optional-dependencies"]
    assert said()["ENTRYPOINT"] == '["penstock"]'
    assert "penstock" in PROJECT["scripts"]
    assert said()["CMD"] == '["serve"]'


def test_image_runs_as_nobody_and_may_write_its_store() -> None:
    """The store's directory is a volume, the working directory, and the user's own."""
    folder = said()["VOLUME"]
    assert said()["USER"] == NOBODY
    assert f"--owner=65534 --group=65534 {folder} " in said()["RUN"]
    assert environment()["PENSTOCK_STORE"].startswith(f"sqlite:///{folder}/")
    assert said()["WORKDIR"] == folder


def test_bytecode_is_in_the_image() -> None:
    """Where none can be written later, it is made before, for all that is installed."""
    installed = next(rest.split()[-1] for _, rest in instructions() if rest.startswith("--from="))
    assert environment()["PYTHONDONTWRITEBYTECODE"] == "1"
    assert (
        f"python -m compileall -q --invalidation-mode unchecked-hash {installed}/lib"
        in (said()["RUN"])
    )
    assert 'sysconfig.get_path("stdlib")' in said()["RUN"]
    assert environment()["PATH"].startswith(f"{installed}/bin:")


def test_ports_are_the_defaults() -> None:
    """HTTP, gRPC and debug, in that order."""
    settings = Settings()
    ports = (settings.port, settings.grpc_port, settings.debug_port)
    assert said()["EXPOSE"] == " ".join(map(str, ports))


def test_ratelimit_is_where_the_reference_image_has_it() -> None:
    """A program, also where a checkout has lost its mode."""
    assert (str(RATELIMIT.relative_to(ROOT)), "/bin/ratelimit") in copied()
    assert any("--chmod=0755 deploy/docker/ratelimit" in rest for _, rest in instructions())
    assert os.access(RATELIMIT, os.X_OK)


def test_ratelimit_becomes_the_server_and_ignores_foreign_arguments(tmp_path: Path) -> None:
    """The shell is replaced, so that SIGTERM reaches the server, which drains and ends with 0."""
    folder = tmp_path / "state"
    folder.mkdir()
    rules = tmp_path / "data" / "ratelimit" / "config"
    rules.mkdir(parents=True)
    shutil.copy(RULES, rules)
    env = {**WORKLOADS["istio"].env, "RUNTIME_ROOT": str(tmp_path / "data")}

    with run_ratelimit(folder, env, "-log_level", "debug", "/data") as server:
        command = Path(f"/proc/{server.process.pid}/cmdline").read_text().split("\0")
        exit_code = server.terminate()

    program, *arguments = [Path(word).name for word in command if word]
    assert program.startswith("python")
    assert arguments == ["penstock", "serve"]
    assert exit_code == 0
    assert "SIGTERM: draining" in server.log()


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (environment()["PENSTOCK_STORE"], "sqlite:////dev/shm/penstock.db"),
        ("memory:", "memory:"),
        ("dynamodb://penstock", "dynamodb://penstock"),
    ],
)
def test_buckets_have_a_place_without_a_volume(tmp_path: Path, given: str, used: str) -> None:
    """Where the image's own folder can't be written, and the operator chose no store."""
    if os.access("/var/lib/penstock", os.W_OK):
        pytest.skip("this machine has the image's folder")
    program = tmp_path / "penstock"
    program.write_text('#!/bin/sh\necho "$@ $PENSTOCK_STORE"\n')
    program.chmod(0o700)
    env = {"PATH": f"{tmp_path}:{os.defpath}", "PENSTOCK_STORE": given}
    ran = subprocess.run([RATELIMIT], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout == f"serve {used}\n"
    assert ("buckets are kept in /dev/shm" in ran.stderr) is (used != given)


def test_only_the_volume_is_written(tmp_path: Path, xds: XdsClient) -> None:
    """The server starts, decides and stops where all else is read-only."""
    unshare = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--mount", "-r")
    inside = (*unshare, "sh", "-c", READ_ONLY)
    volume = tmp_path / "volume"
    volume.mkdir()
    if shutil.which("unshare") is None or subprocess.call([*inside, volume, "true"]) != 0:
        pytest.skip("mounts of its own are not allowed here")
    env = {"PYTHONDONTWRITEBYTECODE": "1", "PENSTOCK_CONFIG": str(RULES)}

    with run_ratelimit(volume, env, inside=(*inside, str(volume))) as server:
        address = f"127.0.0.1:{server.port}"
        answer = xds.ask(address, "basic", entries(few="x"))
        exit_code = server.terminate()

    assert answer["overall_code"] == "OK"
    assert exit_code == 0
    assert (volume / "penstock.db").is_file()
