"""Runs the vector stores of langchain and semantic-kernel, unmodified, against this server: builds
changefeed, serves a new store on a free port, runs the tests against it, and stops it.

    python3 run.py

It ends with a line such as "9 passed, 0 failed", and with status 1 unless every test passed. The
packages are installed into a directory that is gone afterwards.
"""

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SDK = HERE.parent / "python"
STOP_LIMIT = 10  # seconds


def runner():
    """runner is the module that serves the store for the tests of the Python SDK."""
    spec = importlib.util.spec_from_file_location("sdk_run", SDK / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    sdk = runner()
    sdk_home, sdk.HERE = sdk.HERE, HERE
    with tempfile.TemporaryDirectory(prefix="conformance-vectorstores-") as name:
        where = pathlib.Path(name)
        python = sdk.install(where / "venv")
        if python is None:
            print("skipped: the vector stores cannot be installed")
            return 0
        sdk.HERE = sdk_home
        server, account = sdk.serve(where)
        try:
            environment = os.environ | {
                "COSMOS_ENDPOINT": account["endpoint"],
                "COSMOS_KEY": account["key"],
                "COSMOS_CERTIFICATE": account["certificate"],
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            status = subprocess.run([python, HERE / "suite.py"], env=environment, check=False).returncode
            server.send_signal(signal.SIGTERM)
            ended = server.wait(STOP_LIMIT)
        finally:
            server.kill()  # if it is still there
        if ended != 0:
            print(f"changefeed serve ended with {ended}", file=sys.stderr)
        return 1 if ended != 0 else status


if __name__ == "__main__":
    sys.exit(main())
