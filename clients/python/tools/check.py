"""Checks the Python client: lint, types, tests, the suite of the contract, and the wheel in a clean environment.

Builds the binary with Go, unless CHANGEFEED_BINARY names one. Tools come from PyPI and stay in .dist with their caches;
if they cannot be had, their steps are skipped. With the argument bench, measures instead: see bench.py.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import venv

Argument = str | os.PathLike[str]

HERE = pathlib.Path(__file__).resolve().parent.parent
REPOSITORY = HERE.parent.parent
LIMIT = 300  # seconds for a step


class Check:
    """The steps, and what they have in common."""

    def __init__(self, scratch: pathlib.Path) -> None:
        self.kept = REPOSITORY / ".dist" / "clients-python"
        self.failed: list[str] = []
        self.begun = time.monotonic()
        self.python = self.kept / "tools" / ("Scripts" if os.name == "nt" else "bin") / "python"
        self.given = os.environ.get("CHANGEFEED_BINARY")
        self.binary = pathlib.Path(self.given or scratch / ("changefeed.exe" if os.name == "nt" else "changefeed"))
        self.env = {
            **os.environ,
            "CHANGEFEED_BINARY": str(self.binary),
            "PYTHONPATH": os.pathsep.join([str(HERE / "src"), str(HERE / "tests")]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def step(self, name: str, *command: Argument, cwd: pathlib.Path = HERE) -> bool:
        """Runs a step; says whether it has succeeded."""
        print(f"== {name} ({time.monotonic() - self.begun:.0f}s)", flush=True)
        done = subprocess.run(command, cwd=cwd, env=self.env, check=False, timeout=LIMIT)
        if done.returncode != 0:
            self.failed.append(name)
        return done.returncode == 0

    def install(self) -> bool:
        """Installs the tools, unless they are there; says whether they are."""
        wanted, have = HERE / "requirements.txt", self.kept / "requirements.txt"
        if have.is_file() and have.read_bytes() == wanted.read_bytes() and self.python.exists():
            return True
        venv.create(self.kept / "tools", with_pip=True, clear=True)
        pip: list[Argument] = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*pip, "-r", wanted], check=False, timeout=LIMIT).returncode != 0:
            return False
        shutil.copyfile(wanted, have)
        return True

    def bench(self, arguments: list[str]) -> None:
        """Measures the client beside the SDK's own loop."""
        if self.install():
            self.step("Python", self.python, HERE / "tools" / "bench.py", *arguments)
        else:
            print("skipped: the SDK cannot be had")

    def all(self) -> None:
        """Runs all steps."""
        go = os.environ.get("GO", "go")
        if not self.given and not self.step(
            "the binary", go, "build", "-o", self.binary, "./cmd/changefeed", cwd=REPOSITORY
        ):
            return
        if self.install():
            ruff: list[Argument] = [self.python, "-m", "ruff"]
            cache = str(self.kept / "ruff")
            self.step("lint", *ruff, "check", "--quiet", "--cache-dir", cache, ".")
            self.step("format", *ruff, "format", "--quiet", "--check", "--cache-dir", cache, ".")
            self.step("types", self.python, "-m", "mypy", "--cache-dir", self.kept / "mypy")
        else:
            print("skipped: lint, types and tests with the SDK, because the tools cannot be installed")
            self.python = pathlib.Path(sys.executable)
        steered: list[Argument] = [self.python, HERE / "tests" / "steered.py", "--tokens"]
        self.step("the contract", self.binary, "program", "test", "--", *steered)
        self.step("tests", self.python, "-W", "error", "-m", "unittest", "discover", "-s", "tests", "-t", "tests")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="clients-python-") as name:
        check = Check(pathlib.Path(name))
        if sys.argv[1:2] == ["bench"]:
            check.bench(sys.argv[2:])
        else:
            check.all()
        for step in check.failed:
            print(f"FAIL {step}")
        print(f"== {'failed' if check.failed else 'ok'} ({time.monotonic() - check.begun:.0f}s)")
        return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
