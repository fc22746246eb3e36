"""Compares a built wheel with the sources: `python wheel_contents.py WHEEL` exits with 1 if a file is missing."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("platform/fairwitness", "schemas/fairwitness_schemas")


def source_files() -> set[str]:
    """Every file of both packages, by its path inside the wheel."""
    found = set()
    for package in PACKAGES:
        base = (ROOT / package).parent
        files = (path for path in (ROOT / package).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        found |= {path.relative_to(base).as_posix() for path in files}
    return found


def missing_from(wheel: Path) -> list[str]:
    """Source files that the wheel lacks, sorted."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(source_files() - set(archive.namelist()))


if __name__ == "__main__":
    missing = missing_from(Path(sys.argv[1]))
    print(f"{sys.argv[1]}: {len(source_files())} files expected, {len(missing)} missing", *missing, sep="\n  ")
    sys.exit(bool(missing))
