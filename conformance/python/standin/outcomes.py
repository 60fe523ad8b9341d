"""A plugin of pytest that writes what each test does into a file, one JSON object a line, while the tests run:
{"begun": id}, then {"id": id, "outcome": …, "message": …}, and {"ended": true} behind the last. A run that is killed so
loses one outcome only. Tests that the file has from a run before do not run again.
"""

import json
import os

import pytest

PATH = os.environ["CONFORMANCE_OUTCOMES"]
found = {}  # the outcome of the test that runs, by id


def write(**row):
    with open(PATH, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def note(report):
    """note keeps the worst outcome of a test, which has reports of its beginning, its call and its end."""
    outcome, message = found.get(report.nodeid, ("passed", ""))
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        outcome, message = "failed", " ".join(str(crash.message if crash else report.longrepr).split())
    elif report.skipped and outcome == "passed":
        outcome = "skipped"
    found[report.nodeid] = outcome, message


def finish(nodeid):
    outcome, message = found.pop(nodeid, ("failed", "no report"))
    write(id=nodeid, outcome=outcome, message=message)


def pytest_runtest_logstart(nodeid):
    write(begun=nodeid)


def pytest_runtest_logreport(report):
    note(report)


def pytest_runtest_logfinish(nodeid):
    finish(nodeid)


def pytest_collectreport(report):
    if not report.passed:  # a file that cannot be read, or that skips itself
        note(report)
        finish(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    try:
        with open(PATH, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    except FileNotFoundError:
        return
    before = {row.get("id") or row.get("begun") for row in rows}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in before])
    items[:] = [item for item in items if item.nodeid not in before]


def pytest_sessionfinish():
    write(ended=True)
