"""Builds a wheel with the binary for each platform. Needs Go, and nothing from PyPI.

    python3 wheels.py DIRECTORY [GOOS/GOARCH ...]

The same source gives the same bytes: the times in the wheels are constant, and go build uses -trimpath.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent.parent
REPOSITORY = HERE.parent.parent
TIME = (1980, 1, 1, 0, 0, 0)
EXECUTABLE, ORDINARY = 0o100755, 0o100644

# The binary is static, so any libc will do. Go needs macOS 12.
PLATFORMS = {
    "linux/amd64": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    "linux/arm64": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    "darwin/amd64": "macosx_12_0_x86_64",
    "darwin/arm64": "macosx_12_0_arm64",
    "windows/amd64": "win_amd64",
}


class Project:
    """What pyproject.toml says, of which the few simple lines are read: tomllib needs Python 3.11."""

    def __init__(self) -> None:
        self.text = (HERE / "pyproject.toml").read_text("utf-8")
        self.version, self.summary = self.value("version"), self.value("description")
        code = (HERE / "src" / "changefeed" / "_version.py").read_text("utf-8")
        if f'"{self.version}"' not in code:
            raise SystemExit(f"pyproject.toml has version {self.version}, and _version.py has {code.strip()}")

    def value(self, name: str) -> str:
        match = re.search(rf'^{name} = "(.*)"$', self.text, re.MULTILINE)
        if match is None:
            raise SystemExit(f"pyproject.toml has no {name}")
        return match[1]

    def metadata(self) -> str:
        lines = [
            "Metadata-Version: 2.4",
            "Name: changefeed",
            f"Version: {self.version}",
            f"Summary: {self.summary}",
            f"Requires-Python: {self.value('requires-python')}",
            f"License-Expression: {self.value('license')}",
            "License-File: LICENSE",
            "License-File: NOTICES.txt",
            "Description-Content-Type: text/markdown",
        ]
        return "\n".join(lines) + "\n\n" + (HERE / "README.md").read_text("utf-8")

    def entry_points(self) -> str:
        script = self.value("changefeed")
        return f"[console_scripts]\nchangefeed = {script}\n\n[pytest11]\nchangefeed = changefeed._pytest\n"


def build(target: str, to: pathlib.Path) -> None:
    """Builds the stripped binary of a platform."""
    system, architecture = target.split("/")
    env = {**os.environ, "CGO_ENABLED": "0", "GOOS": system, "GOARCH": architecture}
    command = [os.environ.get("GO", "go"), "build", "-trimpath", "-buildvcs=auto", "-ldflags=-s -w"]
    subprocess.run([*command, "-o", str(to), "./cmd/changefeed"], cwd=REPOSITORY, env=env, check=True)


def files_of(project: Project, tag: str, binary: pathlib.Path, name: str) -> dict[str, tuple[bytes, int]]:
    """The files of a wheel, with their modes."""
    package = HERE / "src" / "changefeed"
    found = {f"changefeed/{p.name}": (p.read_bytes(), ORDINARY) for p in package.iterdir() if p.is_file()}
    found[f"changefeed/_bin/{name}"] = (binary.read_bytes(), EXECUTABLE)
    info = f"changefeed-{project.version}.dist-info"
    notices = REPOSITORY / "cmd" / "changefeed" / "internal" / "notices" / "notices.txt"
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in tag.split("."))
    for file, text in {
        "METADATA": project.metadata().encode(),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: wheels.py\nRoot-Is-Purelib: false\n{tags}".encode(),
        "entry_points.txt": project.entry_points().encode(),
        "licenses/LICENSE": (REPOSITORY / "LICENSE").read_bytes(),
        "licenses/NOTICES.txt": notices.read_bytes(),
    }.items():
        found[f"{info}/{file}"] = (text, ORDINARY)
    return found


def write(wheel: pathlib.Path, info: str, files: dict[str, tuple[bytes, int]]) -> None:
    """Writes a wheel with its RECORD."""
    record = ""
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(files):
            content, mode = files[name]
            add(archive, name, content, mode)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(content)}\n"
        add(archive, f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode(), ORDINARY)


def add(archive: zipfile.ZipFile, name: str, content: bytes, mode: int) -> None:
    entry = zipfile.ZipInfo(name, TIME)
    entry.create_system = 3  # Unix, also if the wheel is built elsewhere
    entry.external_attr = mode << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def assemble(target: str, binary: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """Writes the wheel of a platform, with a binary."""
    project = Project()
    tag = PLATFORMS[target]
    name = "changefeed.exe" if target.startswith("windows/") else "changefeed"
    wheel = to / f"changefeed-{project.version}-py3-none-{tag}.whl"
    write(wheel, f"changefeed-{project.version}.dist-info", files_of(project, tag, binary, name))
    return wheel


def main(directory: str, targets: list[str]) -> None:
    to = pathlib.Path(directory)
    to.mkdir(parents=True, exist_ok=True)
    for target in targets or PLATFORMS:
        with tempfile.TemporaryDirectory(prefix="wheels-") as scratch:
            binary = pathlib.Path(scratch) / "changefeed"
            build(target, binary)
            wheel = assemble(target, binary, to)
        print(f"== {wheel} ({wheel.stat().st_size / 1e6:.1f} MB)", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2:])
