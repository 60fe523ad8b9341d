"""Runs the tests that the Python SDK publishes beside its source, unmodified, against this server, and writes the
outcome of each into a file: one JSON object a line, for tools/suites.

    python3 public.py results.ndjson            all the tests
    python3 public.py results.ndjson query      those of the files whose names contain "query"

Each file runs in a process of its own, some files at once. The tests have the emulator's address compiled in: port 8081
of 127.0.0.1 must be free. Tests for accounts with several regions, or with features that this server never
has, are left out (SKIPPED_MARKS).
The server is a new store in memory; containers are not throttled, and the emulator's Entra tokens are accepted.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import xml.etree.ElementTree

import run

HERE = pathlib.Path(__file__).resolve().parent
SDK = "azure-cosmos==4.17.1"
FILES_AT_ONCE = 4
TEST_LIMIT = 90  # seconds, of one test
FILE_LIMIT = 900  # seconds, of one file
RUN_LIMIT = 3600  # seconds, of all
# What the SDK calls an account with several regions, or with a feature that needs them.
SKIPPED_MARKS = (
    "cosmosMultiRegion or cosmosCircuitBreakerMultiRegion or cosmosAADMultiRegion"
    " or cosmosAADCircuitBreakerMultiRegion or cosmosPerPartitionAutomaticFailover or cosmosGSI"
)


def install(where):
    """install makes an environment, fetches the SDK's source, and returns the Python and the directory of the tests."""
    venv.create(where / "venv", with_pip=True)
    python = where / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    commands = [
        [*pip, "install", "--requirement", str(HERE / "public-requirements.txt")],
        [*pip, "download", "--no-deps", "--no-binary=:all:", "--dest", str(where), SDK],
    ]
    for command in commands:
        if subprocess.run(command, check=False).returncode != 0:
            return None, None
    (archive,) = where.glob("azure_cosmos-*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(where / "source", filter="data")
    (tests,) = where.glob("source/*/tests")
    return python, tests


def test(python, tests, name, end):
    """test runs one file, until the end of the run at most, and returns the outcomes of its tests."""
    limit = max(1, min(FILE_LIMIT, end - time.monotonic()))
    report = tests / (name.replace("/", "_") + ".xml")
    command = [python, "-m", "pytest", name, "--quiet", "--no-header", "--tb=native", f"--timeout={TEST_LIMIT}"]
    command += ["-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={report}"]
    command += ["-m", f"not ({SKIPPED_MARKS})"]
    path = os.pathsep.join([str(HERE / "standin"), str(tests)])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(
            command, cwd=tests, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return [{"test": name, "outcome": "failed", "message": f"not finished within {limit:.0f} seconds"}]
    if not report.exists():
        last = (ended.stdout + ended.stderr).strip().splitlines()[-1:]
        return [{"test": name, "outcome": "failed", "message": "no report: " + "".join(last)}]
    return list(outcomes(name, report))


def outcomes(name, report):
    """outcomes reads a report. A test that fails again when it is taken down has one outcome."""
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        inner = (case.get("classname") or "").rsplit(".", 1)[-1]
        title = "::".join(part for part in (name, inner, case.get("name")) if part and part != name[:-3])
        outcome, message = "passed", ""
        for child in case:
            if child.tag in ("failure", "error"):
                outcome, message = "failed", " ".join((child.get("message") or "").split())
            elif child.tag == "skipped" and outcome == "passed":
                outcome = "skipped"
        yield {"test": title, "outcome": outcome, "message": message}


def main(results, only):
    with tempfile.TemporaryDirectory(prefix="conformance-python-public-") as directory:
        where = pathlib.Path(directory)
        python, tests = install(where)
        if python is None:
            print("skipped: the SDK and its tests cannot be had")
            return 3
        server, _ = run.serve(where, "--listen", "127.0.0.1:8081", "--ru", "-1", "--insecure-aad")
        try:
            found = (path.relative_to(tests).as_posix() for path in tests.rglob("test_*.py"))
            names = sorted(name for name in found if only in name and name != "test_config.py")
            end = time.monotonic() + RUN_LIMIT
            with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
                rows = [row for rows in pool.map(lambda name: test(python, tests, name, end), names) for row in rows]
        finally:
            ended = run.stop(server)
        pathlib.Path(results).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if ended != 0:
        print(f"changefeed serve ended with {ended}", file=sys.stderr)
    return 1 if ended != 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *(sys.argv[2:3] or [""])))
