"""Runs the Python SDK, unmodified, against this server: builds changefeed, serves a new store
on a free port with a certificate of its own, runs the tests against it, and stops it.

    python3 run.py            all the tests
    python3 run.py query      those of the files whose names contain "query"

It ends with a line such as "80 passed, 0 failed", and with status 1 unless every test passed.
The SDK is installed into a directory that is gone afterwards.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
STOP_LIMIT = 10  # seconds


def install(where):
    """install makes an environment with the SDK, and returns its Python, or None if there is no SDK to have."""
    venv.create(where, with_pip=True)
    python = where / "bin" / "python"
    requirements = ["--quiet", "--disable-pip-version-check", "--requirement", str(HERE / "requirements.txt")]
    got = subprocess.run([python, "-m", "pip", "install", *requirements], check=False)
    return python if got.returncode == 0 else None


def serve(where, *flags):
    """serve builds and starts the server, and waits until it says where it listens."""
    binary = where / "changefeed"
    subprocess.run(["go", "build", "-o", binary, "./cmd/changefeed"], cwd=HERE.parent.parent, check=True)
    command = [binary, "serve", *flags, "-o", "json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = server.stdout.readline()
    if not line.startswith("{"):
        raise RuntimeError(f"start changefeed serve: it ended with {server.wait()}")
    return server, json.loads(line)


def stop(server):
    """stop asks the server to end, and returns its status."""
    try:
        server.send_signal(signal.SIGTERM)
        return server.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        return "a kill: it did not stop within 10 seconds"
    finally:
        server.kill()  # if it is still there


def main(only):
    with tempfile.TemporaryDirectory(prefix="conformance-python-") as name:
        where = pathlib.Path(name)
        python = install(where / "venv")
        if python is None:
            print("skipped: the SDK cannot be installed")
            return 0
        server, account = serve(where, "--db", where / "store", "--listen", "127.0.0.1:0")
        try:
            environment = os.environ | {
                "COSMOS_ENDPOINT": account["endpoint"],
                "COSMOS_KEY": account["key"],
                "COSMOS_CERTIFICATE": account["certificate"],
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            status = subprocess.run([python, HERE / "suite.py", only], env=environment, check=False).returncode
        finally:
            ended = stop(server)
        if ended != 0:
            print(f"changefeed serve ended with {ended}", file=sys.stderr)
        return 1 if ended != 0 else status


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:2] or [""])))
