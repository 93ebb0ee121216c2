"""Gradvane's tree as `cmake --install` makes it, and CMake run as a stranger runs it."""

import os
import subprocess
from pathlib import Path

SOURCE = Path(os.environ["GRADVANE_SOURCE_DIR"])
BUILD = Path(os.environ["GRADVANE_BUILD_DIR"])
CMAKE = os.environ["GRADVANE_CMAKE"]
TORCH = Path(os.environ["GRADVANE_TORCH_DIR"])
TOOLKIT = os.environ["GRADVANE_CUDA_ROOT"]
# What may name a toolkit: each test says for itself what is there.
TOOLKIT_NAMES = ("CUDA_PATH", "CUDA_HOME", "CUDA_BIN_PATH", "CUDACXX")


def run(*command, expect: int = 0, env: dict[str, str] | None = None):
    kept = {key: value for key, value in os.environ.items() if key not in TOOLKIT_NAMES}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**kept, **(env or {})})
    assert done.returncode == expect, done.stdout + done.stderr
    return done


def install(prefix: Path, component: str = "cpp") -> list[str]:
    """Installs the component, and returns the names of its files."""
    run(CMAKE, "--install", BUILD, "--component", component, "--prefix", prefix)
    return sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file())


def configure(source: Path, build: Path, prefix: Path, torch: Path | None = TORCH, **options):
    """Configures as the documentation says; without torch where that is None."""
    where = f"{prefix};{torch}/share/cmake" if torch else str(prefix)
    return run(CMAKE, "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={where}", **options)
