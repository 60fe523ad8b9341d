"""The binary changefeed: where it is, and how a command of it is run."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from changefeed._errors import BinaryNotFound, ChangefeedError

_NAME = "changefeed.exe" if os.name == "nt" else "changefeed"
_IN_WHEEL = pathlib.Path(__file__).parent / "_bin" / _NAME


def find(binary: str | os.PathLike[str] | None = None) -> str:
    """The path of the binary: the argument, $CHANGEFEED_BINARY, that of the wheel, or that on the PATH."""
    for path, origin in ((binary, "binary"), (os.environ.get("CHANGEFEED_BINARY"), "$CHANGEFEED_BINARY")):
        if path:
            found = shutil.which(os.fspath(path))
            if found is None:
                raise BinaryNotFound(f"{origin} is {os.fspath(path)}: there is no such program", code="missing")
            return found
    if _IN_WHEEL.is_file():
        return str(_IN_WHEEL)
    found = _on_path()
    if found is not None:
        return found
    raise BinaryNotFound(
        "there is no binary changefeed: it is not in this package, which has been installed without a wheel for "
        f"{sys.platform}, and not on the PATH",
        code="missing",
        hint="Set CHANGEFEED_BINARY to its path.",
    )


def _on_path() -> str | None:
    """The binary on the PATH, but not the script of this package, which would start itself."""
    own = pathlib.Path(sys.executable).parent.resolve()
    parts = os.environ.get("PATH", os.defpath).split(os.pathsep)
    others = [part for part in parts if part and pathlib.Path(part).resolve() != own]
    return shutil.which(_NAME, path=os.pathsep.join(others)) or None


def isolated() -> dict[str, Any]:
    """Arguments for a child that gets no signal of the terminal: the parent decides when it ends."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def error_in(lines: Iterable[str]) -> ChangefeedError | None:
    """The error that a command has written to standard error with -o json."""
    found = None
    for line in lines:
        row = parse(line)
        if row is not None and row.get("kind") == "error":
            found = ChangefeedError(
                str(row["error"]), code=str(row["code"]), hint=row.get("hint"), reason=row.get("reason")
            )
    return found


def parse(line: str) -> dict[str, Any] | None:
    """The object of a line; None for another text."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def run(
    binary: str, arguments: list[str], *, env: Mapping[str, str] | None = None, stdin: str = ""
) -> list[dict[str, Any]]:
    """Runs a command with -o json, and returns what it prints; raises ChangefeedError if it fails."""
    command = [binary, *arguments, "-o", "json"]
    done = subprocess.run(command, input=stdin.encode(), capture_output=True, env=env, check=False, **isolated())
    return _rows(arguments, done.returncode, done.stdout, done.stderr)


async def run_async(binary: str, arguments: list[str], *, env: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The same without blocking the loop."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        binary,
        *arguments,
        "-o",
        "json",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        env=env,
        **isolated(),
    )
    try:
        stdout, stderr = await child.communicate()
    except BaseException:
        if child.returncode is None:
            child.kill()
        raise
    return _rows(arguments, child.returncode or 0, stdout, stderr)


def _rows(arguments: list[str], code: int, stdout: bytes, stderr: bytes) -> list[dict[str, Any]]:
    if code != 0:
        text = stderr.decode("utf-8", "replace")
        raise error_in(text.splitlines()) or ChangefeedError(
            f"changefeed {arguments[0]} has ended with {code}: {text.strip()}"
        )
    return [row for row in map(parse, stdout.decode("utf-8", "replace").splitlines()) if row is not None]


def main() -> int:
    """The script `changefeed` of the package: the binary itself."""
    try:
        binary = find()
    except BinaryNotFound as error:
        print(error, file=sys.stderr)
        return 3
    command = [binary, *sys.argv[1:]]
    if os.name == "nt":
        return subprocess.call(command)
    return os.execv(binary, command)  # does not return
