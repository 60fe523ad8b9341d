"""The wheel, installed from its file into a clean environment."""

from __future__ import annotations

import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import unittest
import venv

from support import LIMIT

from changefeed import _binary
from changefeed.testing import server

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGETS = {
    ("linux", "x86_64"): "linux/amd64",
    ("linux", "aarch64"): "linux/arm64",
    ("darwin", "arm64"): "darwin/arm64",
    ("darwin", "x86_64"): "darwin/amd64",
    ("win32", "AMD64"): "windows/amd64",
}

sys.path.insert(0, str(ROOT / "tools"))
import wheels  # noqa: E402


def example() -> str:
    """The first example of the README."""
    match = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert match is not None
    return match[1]


class Wheel(unittest.TestCase):
    def test_the_example_runs_in_a_clean_environment(self) -> None:
        target = TARGETS[sys.platform, platform.machine()]
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            wheel = wheels.assemble(target, pathlib.Path(_binary.find()), directory)
            python = self.install(directory / "venv", wheel)
            with server() as account:
                self.run_example(python, account.fresh_container("/city"), account.put)

    def test_the_same_source_gives_the_same_bytes(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            binary = pathlib.Path(name) / "binary"
            binary.write_bytes(b"binary")
            digests = {
                hashlib.sha256(wheels.assemble("windows/amd64", binary, pathlib.Path(name)).read_bytes()).hexdigest()
                for _ in range(2)
            }
        self.assertEqual(len(digests), 1)

    def install(self, where: pathlib.Path, wheel: pathlib.Path) -> pathlib.Path:
        venv.create(where, with_pip=True)
        python = where / ("Scripts" if os.name == "nt" else "bin") / "python"
        pip: list[str | pathlib.Path] = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-index",
            wheel,
        ]
        subprocess.run(pip, check=True, timeout=6 * LIMIT, env=self.clean())
        return python

    def run_example(self, python: pathlib.Path, orders: str, put: object) -> None:
        assert callable(put)
        put(orders, {"id": "1", "city": "Bonn"}, {"id": "2", "city": "Bonn"})
        code = example().replace("http://127.0.0.1:8081/shop/orders", orders)
        self.assertIn(orders, code)
        command: list[str | pathlib.Path] = [python, "-c", code]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.clean(), cwd=python.parent)
        with process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            process.terminate()
            self.assertEqual(process.wait(LIMIT), 0)
        self.assertEqual(lines, ["upsert 1 Bonn\n", "upsert 2 Bonn\n"])
        version = subprocess.run(
            [python.parent / "changefeed", "version"], capture_output=True, check=True, timeout=LIMIT, env=self.clean()
        )
        self.assertIn(b"changefeed", version.stdout)

    def clean(self) -> dict[str, str]:
        """An environment with nothing of this one's binary and sources."""
        ours = ("CHANGEFEED_BINARY", "PYTHONPATH")
        return {name: value for name, value in os.environ.items() if name not in ours} | {"PATH": os.defpath}


if __name__ == "__main__":
    unittest.main()
