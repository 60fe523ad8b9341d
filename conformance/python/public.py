"""Runs the tests that the Python SDK publishes beside its source, unmodified, against this server, and writes the
outcome of each into a file: one JSON object a line, for tools/suites.

    python3 public.py results.ndjson            all the tests
    python3 public.py results.ndjson query      those of the files whose names contain "query"

Each file runs in a process of its own, some files at once, the largest first, and a line tells of each that has ended.
The tests have the emulator's address compiled in: port 8081 of 127.0.0.1 must be free. Tests for accounts with several
regions, or with features that this server never has, are left out (SKIPPED_MARKS).
The server is a new store in memory; containers are not throttled, and the emulator's Entra tokens are accepted.
"""

import collections
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

import run

HERE = pathlib.Path(__file__).resolve().parent
SDK = "azure-cosmos==4.17.1"
FILES_AT_ONCE = 6
TEST_LIMIT = 240  # seconds, of one test
STUCK_LIMIT = 270  # seconds without an outcome: an asynchronous test often hangs for ever when its time is over
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
    """test runs one file, until the end of the run at most, and returns the outcomes of its tests. If a test stops to
    answer, its process is killed, and a new one runs the rest of the file."""
    log = tests / (name.replace("/", "_") + ".outcomes")
    command = [python, "-m", "pytest", name, "--quiet", "--no-header", "--tb=native", f"--timeout={TEST_LIMIT}"]
    command += ["-p", "no:cacheprovider", "-p", "outcomes", "-m", f"not ({SKIPPED_MARKS})"]
    path = os.pathsep.join([str(HERE / "standin"), str(tests)])
    environment = os.environ | {
        "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "CONFORMANCE_OUTCOMES": str(log),
    }
    begun, rows, ended = time.monotonic(), [], {"ended": True}
    while True:
        before = len(rows)
        with log.with_suffix(".output").open("w", encoding="utf-8") as output:
            process = subprocess.Popen(command, cwd=tests, env=environment, stdout=output, stderr=output)
            killed = watch(process, log, end)
        rows = read(log)
        if ended in rows or len(rows) == before or time.monotonic() >= end:
            break
    if ended not in rows and (not rows or "begun" not in rows[-1]):
        last = log.with_suffix(".output").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        rows.append({"id": name, "outcome": "failed", "message": killed or "no report: " + "".join(last)})
    found = list(outcomes(name, rows))
    counts = collections.Counter(row["outcome"] for row in found)
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"{name}: {told or 'no tests'}, {time.monotonic() - begun:.0f} s", flush=True)
    return found


def watch(process, log, end):
    """watch waits for a process, and kills it if its log does not grow, or when the run is over. It returns why it
    killed the process, or nothing."""
    size, grown = 0, time.monotonic()
    while True:
        try:
            process.wait(1)
            return ""
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        if log.exists() and log.stat().st_size > size:
            size, grown = log.stat().st_size, now
        if now - grown < STUCK_LIMIT and now < end:
            continue
        process.kill()
        process.wait()
        return f"not finished within {min(now - grown, STUCK_LIMIT):.0f} seconds"


def read(log):
    """read returns the rows of a log, and cuts off what a killed process has written of another."""
    if not log.exists():
        return []
    whole, newline, part = log.read_text(encoding="utf-8").rpartition("\n")
    if part:
        log.write_text(whole + newline, encoding="utf-8")
    return [json.loads(line) for line in whole.split("\n") if line]


def outcomes(name, rows):
    """outcomes returns the outcomes in the rows of a log. A test that began and has no outcome did not end in time."""
    ended = {row["id"] for row in rows if "id" in row}
    for row in rows:
        if "id" in row:
            yield {"test": title(name, row["id"]), "outcome": row["outcome"], "message": row["message"]}
        elif "begun" in row and row["begun"] not in ended:
            yield {"test": title(name, row["begun"]), "outcome": "failed", "message": "not finished in time"}


def title(name, nodeid):
    """title is the name of a test in the list: its file, its class and its own name with its parameters."""
    path, bracket, parameters = nodeid.partition("[")
    parts = path.split("::")[1:]
    return "::".join([name, *parts[-2:]]) + bracket + parameters


def main(results, only):
    with tempfile.TemporaryDirectory(prefix="conformance-python-public-") as directory:
        where = pathlib.Path(directory)
        python, tests = install(where)
        if python is None:
            print("skipped: the SDK and its tests cannot be had")
            return 3
        server, _ = run.serve(where, "--listen", "127.0.0.1:8081", "--ru", "-1", "--insecure-aad")
        try:
            files = sorted(tests.rglob("test_*.py"), key=lambda path: (-path.stat().st_size, path))
            names = [path.relative_to(tests).as_posix() for path in files]
            names = [name for name in names if only in name and name != "test_config.py"]
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
