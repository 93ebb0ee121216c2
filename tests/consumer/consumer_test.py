"""A stranger's LibTorch loop, attached by three lines, built against the installed package and run."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ["GRADVANE_SOURCE_DIR"])
BUILD = Path(os.environ["GRADVANE_BUILD_DIR"])
CMAKE = os.environ["GRADVANE_CMAKE"]
TORCH = os.environ["GRADVANE_TORCH_DIR"]
PROJECT = SOURCE / "tests" / "consumer" / "project"


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    folder = tmp_path_factory.mktemp("build")
    run(CMAKE, "--install", BUILD, "--prefix", prefix)
    # What any project that uses a CUDA build of torch says.
    cuda = os.environ["GRADVANE_CUDA_ROOT"]
    toolkit = [f"-DCUDAToolkit_ROOT={cuda}", f"-DCUDA_TOOLKIT_ROOT_DIR={cuda}",
               f"-DCMAKE_CUDA_COMPILER={cuda}/bin/nvcc", "-DTORCH_CUDA_ARCH_LIST=9.0"]
    run(CMAKE, "-S", PROJECT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_PREFIX_PATH={prefix};{TORCH}", *(toolkit if cuda else []))
    run(CMAKE, "--build", folder)
    return folder


def test_the_loop_trains_and_every_step_is_logged(built, tmp_path):
    log = tmp_path / "steps.jsonl"
    run(built / "train", env={**os.environ, "GRADVANE_STEP_LOG": str(log), "GRADVANE_PORT": "0",
                              "GRADVANE_RUN_DIR": str(tmp_path)})
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(1, 81))
    assert all(step["read_at"] == "optimizer" and step["grad_norm"] > 0 for step in steps)
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert json.loads((tmp_path / "endpoint.rank0.json").read_text())["state"] == "finished"


def test_the_output_is_the_same_with_and_without(built, tmp_path):
    environment = {**os.environ, "GRADVANE_PORT": "0", "GRADVANE_RUN_DIR": str(tmp_path)}
    with_agent = run(built / "train", env=environment).stdout
    without = run(built / "train", env={**environment, "GRADVANE": "off"}).stdout
    assert with_agent == without


def test_the_readme_shows_the_example_that_is_built_here(built):
    source = (PROJECT / "readme.cpp").read_text()
    example = re.search(r"// readme-begin\n(.*?)// readme-end", source, re.DOTALL).group(1)
    assert f"```cpp\n{example}```" in (SOURCE / "README.md").read_text()
    assert (built / "readme").exists()


def test_the_installed_header_stands_alone_and_needs_no_torch(built, tmp_path):
    prefix_header = SOURCE / "agent" / "include"
    probe = tmp_path / "probe.cpp"
    probe.write_text("#include <gradvane/agent.hpp>\nint main() {}\n")
    run(os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
        f"-I{prefix_header}", probe)
