"""Strangers' LibTorch loops, attached by three lines, built against the installed package and run."""

import json
import os
import re

import pytest
from installed import CMAKE, SOURCE, TOOLKIT, TORCH, configure, install, run

PROJECTS = SOURCE / "tests" / "consumer"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    install(prefix)
    return prefix


@pytest.fixture(scope="module")
def hello(prefix, tmp_path_factory):
    """README's project. CUDA_HOME is what Gradvane's own build takes, and torch's scripts do not."""
    folder = tmp_path_factory.mktemp("hello")
    configure(PROJECTS / "hello", folder, prefix, env={"CUDA_HOME": TOOLKIT} if TOOLKIT else {})
    run(CMAKE, "--build", folder)
    return folder


@pytest.fixture(scope="module")
def examples(prefix, tmp_path_factory):
    """A project that finds Torch itself, first. Torch's scripts look at CUDA_PATH."""
    if not TOOLKIT and (TORCH / "lib" / "libtorch_cuda.so").exists():
        pytest.skip("torch's own script wants a CUDA toolkit")
    folder = tmp_path_factory.mktemp("examples")
    configure(PROJECTS / "examples", folder, prefix, env={"CUDA_PATH": TOOLKIT} if TOOLKIT else {})
    run(CMAKE, "--build", folder)
    return folder


def test_the_loop_trains_and_every_step_is_logged(examples, tmp_path):
    log = tmp_path / "steps.jsonl"
    run(examples / "train", env={"GRADVANE_STEP_LOG": str(log), "GRADVANE_PORT": "0",
                                 "GRADVANE_RUN_DIR": str(tmp_path)})
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(1, 81))
    assert all(step["read_at"] == "optimizer" and step["grad_norm"] > 0 for step in steps)
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert json.loads((tmp_path / "endpoint.rank0.json").read_text())["state"] == "finished"


def test_the_output_is_the_same_with_and_without(examples, tmp_path):
    environment = {"GRADVANE_PORT": "0", "GRADVANE_RUN_DIR": str(tmp_path)}
    with_agent = run(examples / "train", env=environment).stdout
    without = run(examples / "train", env={**environment, "GRADVANE": "off"}).stdout
    assert with_agent == without


def test_a_program_that_names_no_torch_starts(examples, tmp_path):
    said = run(examples / "url", env={"GRADVANE_PORT": "0", "GRADVANE_RUN_DIR": str(tmp_path)}).stdout
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+\n", said)


def test_the_readme_shows_the_project_that_is_built_here(hello):
    readme = (SOURCE / "README.md").read_text()
    source = (PROJECTS / "hello" / "hello.cpp").read_text()
    example = re.search(r"// readme-begin\n(.*?)// readme-end", source, re.DOTALL).group(1)
    assert f"```cpp\n{example}```" in readme
    assert f"```cmake\n{(PROJECTS / 'hello' / 'CMakeLists.txt').read_text()}```" in readme
    assert (hello / "hello").exists()


def test_the_installed_header_stands_alone_and_needs_no_torch(prefix, tmp_path):
    probe = tmp_path / "probe.cpp"
    probe.write_text("#include <gradvane/agent.hpp>\nint main() {}\n")
    run(os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
        f"-I{prefix / 'include'}", probe)
