"""bench/gpu/prebuilt.py runs a script with the package of the bundle, and keeps what it prints."""

import json
import sys
import tarfile

import prebuilt
import pytest

SCRIPT = """
import os, sys
from pathlib import Path
import made_elsewhere
print(made_elsewhere.NAME, sys.argv[1:], (Path(os.environ["GRADVANE_BUILD_DIR"]) / "commit").read_text())
sys.exit(3)
"""


@pytest.mark.parametrize("keeps", [True, False])
def test_a_script_has_the_package_and_its_output_is_kept(keeps, tmp_path, monkeypatch, capfd):
    package = tmp_path / "bundle" / "python" / "made_elsewhere"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("NAME = 'of the bundle'")
    (tmp_path / "bundle" / "commit").write_text("0123abc")
    bundle, script = tmp_path / "bundle.tgz", tmp_path / "some_script.py"
    with tarfile.open(bundle, "w:gz") as archive:
        archive.add(tmp_path / "bundle", ".")
    script.write_text(SCRIPT)
    monkeypatch.setattr(prebuilt, "BUNDLE", bundle)
    if keeps:
        monkeypatch.setenv("OUT", str(tmp_path))
    else:
        monkeypatch.delenv("OUT", raising=False)
    monkeypatch.setattr(sys, "argv", ["prebuilt.py", "python", str(script), "--device", "cpu"])
    assert prebuilt.main() == 3
    line = "of the bundle ['--device', 'cpu'] 0123abc\n"
    assert capfd.readouterr().out.endswith(line)
    kept = tmp_path / "some_script.txt"
    assert kept.exists() == keeps
    if keeps:
        first, *rest = kept.read_text().splitlines(keepends=True)
        assert rest == [line]
        assert json.loads(first)["commit"] == "0123abc" and "--device" in json.loads(first)["command"]
