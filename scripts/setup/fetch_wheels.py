"""Fetches the wheels of some requirements and of all that those need, one at a time, into a folder.

pip alone forgets everything it fetched when it is cut short, unless the index lets it cache. With torch
that is 3 GB to start over; here a wheel that arrived stays, and only the one in flight is lost. What is
installed already is not fetched. There is nothing to choose between: every version is pinned, by
torch or by the constraints.

    python scripts/setup/fetch_wheels.py --into .deps/wheels --constraint .deps/constraints.txt torch==2.11.0 ...
"""

import argparse
import importlib.metadata
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name, parse_wheel_filename


class Wheels:
    def __init__(self, folder: Path, constraints: Path):
        self.folder = folder
        self.constraints = constraints
        self.pins = {canonicalize_name(pin.name): pin.specifier
                     for pin in map(Requirement, constraints.read_text().split())}

    def needs_of(self, requirement: Requirement) -> list[str]:
        """What the package itself requires, as its metadata says; fetches it where it is not here."""
        installed = self.installed(requirement)
        if installed is not None:
            return installed.requires or []
        wheel = self.fetched(requirement) or self.fetch(requirement)
        with zipfile.ZipFile(wheel) as archive:
            metadata = next(name for name in archive.namelist()
                            if name.endswith(".dist-info/METADATA") and name.count("/") == 1)
            headers = HeaderParser().parsestr(archive.read(metadata).decode())
        return headers.get_all("Requires-Dist") or []

    def fits(self, requirement: Requirement, version) -> bool:
        pin = self.pins.get(canonicalize_name(requirement.name))
        return requirement.specifier.contains(version, prereleases=True) and (
            pin is None or pin.contains(version, prereleases=True))

    def installed(self, requirement: Requirement):
        try:
            found = importlib.metadata.distribution(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            return None
        return found if self.fits(requirement, found.version) else None

    def fetched(self, requirement: Requirement) -> Path | None:
        for wheel in self.folder.glob("*.whl"):
            name, version, _, _ = parse_wheel_filename(wheel.name)
            if name == canonicalize_name(requirement.name) and self.fits(requirement, version):
                return wheel
        return None

    def fetch(self, requirement: Requirement) -> Path:
        plain = f"{requirement.name}{requirement.specifier}"
        print(f"fetching {plain}", flush=True)
        # pip writes into a folder of its own and moves the finished file, so none here is half a wheel.
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
             "--no-deps", "--only-binary=:all:", "--retries", "5", "--resume-retries", "30",
             "--timeout", "60", "--progress-bar", "off", "--dest", str(self.folder),
             "--constraint", str(self.constraints), plain],
            check=True)
        wheel = self.fetched(requirement)
        if wheel is None:
            raise SystemExit(f"no wheel of {plain} came")
        return wheel


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", required=True, type=Path)
    parser.add_argument("--constraint", required=True, type=Path)
    parser.add_argument("requirement", nargs="+")
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)

    wheels = Wheels(options.into, options.constraint)
    waiting = [Requirement(text) for text in options.requirement]
    seen = set()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        for text in wheels.needs_of(requirement):
            need = Requirement(text)
            wanted_for = [{"extra": extra} for extra in requirement.extras] or [{"extra": ""}]
            if need.marker is None or any(need.marker.evaluate(extra) for extra in wanted_for):
                waiting.append(need)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
