"""bench/gpu/prebuilt.py runs a script with the package of the bundle, and keeps what it prints."""

import json
import os
import sys
import tarfile

import prebuilt
import pytest
import stages
from process import run

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


def test_a_stage_finds_programs_and_package_of_the_bundle_and_leaves_its_file(tmp_path, monkeypatch):
    (tmp_path / "bundle" / "bin").mkdir(parents=True)
    (tmp_path / "bundle" / "commit").write_text("0123abc")
    program = tmp_path / "bundle" / "bin" / "char_gpt"
    program.write_text("#!/bin/sh\necho trained; exit 5")
    program.chmod(0o755)
    bundle = tmp_path / "bundle.tgz"
    with tarfile.open(bundle, "w:gz") as archive:
        archive.add(tmp_path / "bundle", ".")

    def train(context):
        assert context.build.build(["char_gpt"], context.deadline) == 0 and context.build.package.name == "python"
        done = run([context.build.program("char_gpt")], context.log, context.deadline)
        return {"said": done.out, "failure": None if done.code == 5 else "another program"}

    monkeypatch.setattr(prebuilt, "BUNDLE", bundle)
    monkeypatch.setitem(stages.STAGES, "train", train)
    monkeypatch.setattr(os, "environ", {**os.environ, "OUT": str(tmp_path)})
    monkeypatch.setattr(sys, "argv", ["prebuilt.py", "stage", "train", "--quick", "--minutes", "1"])
    assert prebuilt.main() == 0
    written = json.loads((tmp_path / "gpu_train.json").read_text())
    assert written["results"] == {"said": "trained\n"} and written["machine"]["commit"] == "0123abc"
    assert written["build"] == {"prebuilt": True} and written["quick"]
    monkeypatch.setattr(sys, "argv", ["prebuilt.py", "stage", "build"])
    with pytest.raises(SystemExit):  # there is nothing to build
        prebuilt.main()
