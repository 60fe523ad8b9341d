"""A long-lived program of `changefeed run --long-lived`."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import LIMIT

from changefeed import _binary
from changefeed.testing import server

APP = """
from changefeed import Batch, program

async def handle(batch: Batch) -> None:
    for change in batch:
        print("handled", change.id, flush=True)

program.serve(handle)
"""


class Programs(unittest.TestCase):
    def test_run_starts_the_program_once(self) -> None:
        with tempfile.TemporaryDirectory() as directory, server() as account:
            app = pathlib.Path(directory) / "app.py"
            app.write_text(APP)
            orders = account.fresh_container()
            account.put(orders, {"id": "1", "pk": "a"}, {"id": "2", "pk": "b"})
            command = [_binary.find(), "run", "--source", orders, "--name", "m", "--create-leases", "--once"]
            done = subprocess.run(
                [*command, "--long-lived", "--", sys.executable, app],
                capture_output=True, text=True, timeout=LIMIT, check=False,
            )  # fmt: skip
        self.assertEqual((done.returncode, done.stdout), (0, "handled 1\nhandled 2\n"), done.stderr)

    def test_a_program_says_how_it_is_started(self) -> None:
        env = {name: value for name, value in os.environ.items() if name != "CHANGEFEED_CONTRACT"}
        command = [sys.executable, "-c", APP]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, env=env)
        self.assertEqual(done.returncode, 1)
        self.assertIn("changefeed run --long-lived", done.stderr)


if __name__ == "__main__":
    unittest.main()
