"""What is installed for C++, and what find_package(gradvane) says where something beside it is missing."""

import os
import re
import shutil
from pathlib import Path

import pytest
from installed import SOURCE, TORCH, configure, install

PROJECT = "cmake_minimum_required(VERSION 3.25)\nproject(stranger LANGUAGES {})\nfind_package(gradvane {})\n"
VERSION = Path("share/cmake/Torch/TorchConfigVersion.cmake")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    install(prefix)
    return prefix


@pytest.fixture
def changed(prefix, tmp_path):
    """A copy of the installed tree, for a test to break."""
    return Path(shutil.copytree(prefix, tmp_path / "changed"))


def built_with(prefix, name: str) -> str:
    config = next(prefix.rglob("gradvaneConfig.cmake")).read_text()
    return re.search(rf'\b{name} "?([^"\n)]+)', config).group(1)


def fake_torch(folder: Path, release: str, cuda: str | None) -> Path:
    """A torch whose script must not run: it would demand a toolkit before anything else is said."""
    (folder / VERSION).parent.mkdir(parents=True)
    real = (TORCH / VERSION).read_text()
    (folder / VERSION).write_text(re.sub(r'(PACKAGE_VERSION) "[^"]*"', rf'\1 "{release}.0"', real, count=1))
    (folder / VERSION).with_name("TorchConfig.cmake").write_text('message(FATAL_ERROR "torch ran")\n')
    if cuda:
        (folder / "lib").mkdir()
        (folder / "lib" / "libc10_cuda.so").write_bytes(f"\0libcudart.so.{cuda}\0".encode())
    return folder


def refusal(tmp_path, prefix, torch, **options) -> str:
    """The sentence by which find_package(gradvane REQUIRED) fails, in one line."""
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format("NONE", "REQUIRED"))
    said = configure(tmp_path, tmp_path / "build", prefix, torch, expect=1, **options).stderr
    assert "torch ran" not in said
    return " ".join(said.split("Reason given by package:")[1].split())


def test_the_component_for_cpp_is_header_libraries_cmake_files_and_licences(tmp_path):
    files = install(tmp_path)
    licences = ["LICENSE", "THIRD_PARTY_NOTICES.md",
                *(str(path.relative_to(SOURCE)) for path in (SOURCE / "LICENSES").rglob("*.txt"))]
    assert [name for name in files if "/doc/" in name] == sorted(f"share/doc/gradvane/{name}" for name in licences)
    headers = (SOURCE / "agent" / "include").rglob("*.hpp")
    assert [name for name in files if name.startswith("include/")] == sorted(
        f"include/{path.relative_to(SOURCE / 'agent' / 'include')}" for path in headers)
    rest = [name for name in files if not name.startswith(("include/", "share/doc/"))]
    assert {name for name in rest if "/cmake/gradvane/" not in name} == {
        f"{built_libraries(tmp_path)}/{name}" for name in ("libgradvane.so", "libgradvane_inject.so", "libgradvane_tls.so")}
    assert all(name.endswith(".cmake") for name in rest if "/cmake/gradvane/" in name)


def built_libraries(prefix) -> str:
    """The folder of libraries: lib, or what the distribution calls it."""
    return str(next(prefix.rglob("libgradvane.so")).parent.relative_to(prefix))


def test_the_component_for_python_is_apart(tmp_path):
    files = install(tmp_path, "python")
    assert files
    assert all(name.startswith("gradvane/") for name in files)


def test_no_torch_is_a_sentence_with_the_command_that_names_one(tmp_path, prefix):
    said = refusal(tmp_path, prefix, None)
    assert f"gradvane finds no torch; it was built beside torch {built_with(prefix, 'BUILT_BESIDE')}." in said
    assert f'"-DCMAKE_PREFIX_PATH={prefix};$(python -c \'import torch; ' \
           "print(torch.utils.cmake_prefix_path)')\"" in said


@pytest.mark.parametrize("other", ["release", "CUDA"])
def test_another_torch_is_a_sentence_that_names_both(tmp_path, prefix, other):
    ours = built_with(prefix, "BUILT_BESIDE")
    release, cuda = re.fullmatch(r"([\d.]+) with(?:out)? CUDA ?(\d+)?", ours).groups()
    if other == "release":
        release = "2.1"
    else:
        cuda = None if cuda else "13"
    torch = fake_torch(tmp_path / "torch", release, cuda)
    theirs = f"{release} with CUDA {cuda}" if cuda else f"{release} without CUDA"
    assert f"was built beside torch {ours}, and this is torch {theirs}: {torch}." in refusal(tmp_path, prefix, torch)


def test_a_library_that_the_loader_does_not_find_is_a_sentence_with_its_package(tmp_path, changed):
    library = next(changed.rglob("libgradvane.so"))
    library.write_bytes(re.sub(rb"(lib(?:yaml-cpp|prometheus-cpp-core)\.so\.)\d", rb"\g<1>9", library.read_bytes()))
    said = refusal(tmp_path, changed, TORCH)
    assert re.search(r"gradvane needs libprometheus-cpp-core\.so\.9\S* and libyaml-cpp\.so\.9\S*, which the loader "
                     r"does not find\. .* apt install libprometheus-cpp-core9\S* libyaml-cpp9", said)


def test_a_toolkit_that_is_needed_and_missing_is_a_sentence(tmp_path, prefix):
    if built_with(prefix, "_gradvane_torch_by_hand") == "ON" or "without" in built_with(prefix, "BUILT_BESIDE"):
        pytest.skip("this build needs none")
    if shutil.which("nvcc", path=f"{os.environ['PATH']}:/usr/local/cuda/bin:/opt/cuda/bin"):
        pytest.skip("there is one that is always found")
    said = refusal(tmp_path, prefix, TORCH)
    assert re.search(r"needs a CUDA toolkit .* nvcc on PATH, .* as CUDA_PATH\.", said)


def test_a_build_that_had_no_toolkit_asks_for_none(tmp_path, changed):
    config = next(changed.rglob("gradvaneConfig.cmake"))
    config.write_text(config.read_text().replace("torch_by_hand OFF", "torch_by_hand ON"))
    assert built_with(changed, "_gradvane_torch_by_hand") == "ON"
    # ${TORCH_LIBRARIES} is empty here, and the plain signature works all the same.
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format("CXX", "REQUIRED") + (
        "add_executable(a a.cpp)\ntarget_link_libraries(a ${TORCH_LIBRARIES} gradvane::gradvane)\n"))
    (tmp_path / "a.cpp").touch()
    configure(tmp_path, tmp_path / "build", changed)
    linked = (tmp_path / "build" / "build.ninja").read_text()
    assert f"{TORCH}/lib/libtorch_cpu.so" in linked
    assert "cudart" not in linked


def test_a_project_that_can_do_without_gradvane_goes_on(tmp_path, prefix):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format("NONE", "QUIET"))
    done = configure(tmp_path, tmp_path / "build", prefix, None)
    assert "CMake Error" not in done.stderr
