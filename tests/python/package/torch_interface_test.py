"""What the package uses of torch's functions of C++, which another torch may not have."""

import os
import subprocess
import sys
from pathlib import Path

import torch  # noqa: F401 - which the native part looks for

from gradvane import _native

HOOKS = Path(__file__).parent.parent / "hooks"
PLUGIN = "import torch\nfrom gradvane import _native\n_native.do_without_functions_of_cpp()\nassert not any({}.values())\n"


def test_this_torch_has_every_function_that_saves_calls_of_python():
    assert _native.functions_of_cpp() == dict.fromkeys(["dispatch_keys", "grad", "requires_grad", "version"], True)


def test_without_these_functions_gradients_are_read_and_clipped_alike(tmp_path):
    (tmp_path / "newer_torch.py").write_text(PLUGIN.format("_native.functions_of_cpp()"))
    paths = [str(tmp_path), str(Path(os.environ["GRADVANE_BUILD_DIR"]) / "python"), os.environ.get("PYTHONPATH", "")]
    tests = [str(HOOKS / f"{name}_test.py") for name in ("optimizers", "clipping", "own_clip")]
    run = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "newer_torch", *tests],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert "skipped" not in run.stdout.splitlines()[-1], run.stdout[-400:]
