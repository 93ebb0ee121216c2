"""The page's sources: their types, their own tests, and that a bundle is the same bytes wherever it is made."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
SOURCES = ROOT / "dashboards" / "page"
MODULES = Path(os.environ.get("GRADVANE_PAGE_MODULES", ROOT / ".deps" / "page" / "node_modules"))
NODE = os.environ.get("GRADVANE_NODE", "node")
MOST_PACKED_BYTES = 64 * 1024


def build(*arguments: object, sources: Path = SOURCES) -> subprocess.CompletedProcess[str]:
    return subprocess.run([NODE, sources / "build.mjs", "--modules", MODULES, *arguments], text=True, capture_output=True)


@pytest.mark.parametrize("what", ["--check", "--test"])
def test_the_types_fit_and_the_sources_own_tests_pass(what):
    done = build(what)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_type_that_does_not_fit_is_seen(tmp_path):
    copy = tmp_path / "page"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("node_modules"))
    (copy / "src" / "wrong.ts").write_text("export const wrong: number = 'text';\n")
    assert build("--check", sources=copy).returncode != 0


def test_a_bundle_is_the_same_bytes_wherever_it_is_made_and_small(tmp_path):
    copy = tmp_path / "elsewhere" / "page"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("node_modules"))
    for sources, out in ((SOURCES, tmp_path / "a"), (copy, tmp_path / "b")):
        done = build("--out", out, sources=sources)
        assert done.returncode == 0, done.stderr
    for name in ("page.js", "style.css"):
        text = (tmp_path / "a" / name).read_bytes()
        assert text == (tmp_path / "b" / name).read_bytes()
        assert str(ROOT).encode() not in text
    packed = sum(len(gzip.compress((tmp_path / "a" / name).read_bytes())) for name in ("page.js", "style.css"))
    assert packed < MOST_PACKED_BYTES


def test_a_bundle_names_nobody_it_could_ask(tmp_path):
    assert build("--out", tmp_path).returncode == 0
    script = (tmp_path / "page.js").read_text()
    code = script.replace("http://www.w3.org/", "")  # namespaces
    assert re.findall(r"https?://[^\s\"'`)]+", re.sub(r"/\*!.*?\*/", "", code, flags=re.DOTALL)) == []
    assert "url(" not in (tmp_path / "style.css").read_text()
    for licence in ("preact", "uplot"):
        assert licence in script and "Permission is hereby granted" in script


def test_no_package_names_where_it_is_fetched_from():
    lock = (SOURCES / "package-lock.json").read_text()
    assert '"resolved"' not in lock and lock.count('"integrity"') >= 5
