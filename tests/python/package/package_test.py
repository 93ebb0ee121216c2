"""The package as people install it: pip install ., the wheel where there is no compiler, and a sentence where
neither can work."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import running

SOURCE = Path(os.environ.get("GRADVANE_SOURCE_DIR", running.TESTS.parents[1]))


def new_environment(folder: Path, *, torch: bool) -> Path:
    """A virtual environment that has nothing, or the torch of ours and what it needs."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    if torch:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        place = folder / "lib" / version / "site-packages" / "torch_of_ours.pth"
        place.write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def environment(path=None) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("GRADVANE", "PYTHON"))}
    # The compiler by the name that the build gives it: pip's own name for it would find nothing in the compiler cache.
    # And with the options of the build, so that nothing is compiled that lies there.
    env.update(GRADVANE_PORT="0", OMP_NUM_THREADS="1", PIP_DISABLE_PIP_VERSION_CHECK="1", CC="cc", CXX="c++",
               CMAKE_ARGS="-DCMAKE_CUDA_ARCHITECTURES=80;90;100",
               CCACHE_DIR=os.environ.get("CCACHE_DIR", str(SOURCE / ".deps/cache/ccache")))
    if path is not None:
        env["PATH"] = str(path)
    return env


def run(*command, cwd=None, path=None, check=True, timeout=1200):
    env = environment(path)
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True,
                          timeout=timeout)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def build_folders() -> set[str]:
    return {path.name for path in (SOURCE / "build").glob("*")}


@pytest.fixture(scope="module")
def installed_and_wheel(tmp_path_factory) -> tuple[Path, Path]:
    """The programs of an environment with `pip install .`, and a wheel for two Pythons: two builds of one checkout at once.
    For all five Pythons the wheel takes as long as all other tests."""
    folder = tmp_path_factory.mktemp("pip") / "venv"
    into = tmp_path_factory.mktemp("wheel")
    before = build_folders()
    programs = new_environment(folder, torch=True)
    commands = [[programs / "pip", "install", "--quiet", SOURCE],
                ["env", f"GRADVANE_WHEEL_DIR={into}", "GRADVANE_WHEEL_PYTHONS=3.13", SOURCE / "scripts" / "wheel.sh"]]
    builds = [subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
              for command in commands]
    told = [build.communicate(timeout=2300)[0] for build in builds]
    assert [build.returncode for build in builds] == [0, 0], "\n".join(told)
    assert build_folders() <= before, "a build leaves nothing in the checkout that the next one would take for its own"
    (wheel,) = into.glob("gradvane-*-py3-none-*.whl")
    return programs, wheel


@pytest.fixture(scope="module")
def wheel(installed_and_wheel) -> Path:
    return installed_and_wheel[1]


def test_pip_install_of_the_checkout_works_in_one_command_given_torch_while_another_build_of_it_runs(tmp_path, installed_and_wheel):
    programs, _ = installed_and_wheel
    script = running.write(tmp_path, running.TRAINS)
    done = run(programs / "gradvane", "run", "--require", "--step-log", "steps.jsonl", script, cwd=tmp_path)
    assert done.stdout == "trained\n"
    assert len(running.steps_in(tmp_path / "steps.jsonl")) == 3
    assert run(programs / "gradvane", "--version", cwd=tmp_path).stdout.startswith("gradvane 0.")


def test_the_wheel_installs_where_there_is_no_compiler_and_no_toolkit(tmp_path, wheel):
    bin_folder = new_environment(tmp_path / "venv", torch=True)
    run(bin_folder / "pip", "install", "--quiet", "--no-deps", wheel, path=bin_folder)
    script = running.write(tmp_path, running.TRAINS + "    import shutil; print(shutil.which('cc'), shutil.which('nvcc'))\n")
    done = run(bin_folder / "gradvane", "run", "--require", "--step-log", "steps.jsonl", script, cwd=tmp_path,
               path=bin_folder)
    assert done.stdout == "trained\nNone None\n"
    assert len(running.steps_in(tmp_path / "steps.jsonl")) == 3


def pip_into(site: Path, *wanted) -> None:
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-deps", "--no-compile", "--upgrade", "--target", site, *wanted)


def newest_torch(site: Path) -> str:
    """Installs the first torch that `make test-wheel` takes, which is the newest, and returns its version. Its CUDA libraries are
    those of our own torch, where the same major version is enough: all of them would be 3 GB. Nothing runs on a device."""
    (version,) = re.findall(r"pairs=\((\d\S+)", (SOURCE / "scripts" / "test_wheel.sh").read_text())
    pip_into(site, f"torch=={version}")
    (metadata,) = site.glob("torch-*.dist-info/METADATA")
    own = re.findall(r"^Requires-Dist: (nvidia-(?:nccl|nvshmem)-\S+?==[\d.]+)", metadata.read_text(), re.MULTILINE)
    assert len(own) == 2, "what torch 2.15 needs in a newer version than ours is no longer known"
    pip_into(site, *own)
    for library in (Path(sysconfig.get_path("purelib")) / "nvidia").iterdir():
        if not (site / "nvidia" / library.name).exists():
            (site / "nvidia" / library.name).symlink_to(library)
    return version


def test_the_wheel_works_beside_the_newest_torch_from_the_registry(tmp_path, wheel):
    """`make test-wheel` runs more of the tests, beside more versions."""
    site = tmp_path / "site"
    version = newest_torch(site)
    pip_into(site, wheel)
    environment = {"PYTHONPATH": str(site), "WHOLE_TORCH": "1"}
    script = running.write(tmp_path, running.TRAINS + "    import gradvane; print(torch.__version__, torch.__file__, gradvane.__file__)\n")
    words = ("-m", "gradvane", "run", "--require", "--step-log", tmp_path / "steps.jsonl", script)
    said = run("env", *(f"{key}={value}" for key, value in environment.items()), sys.executable, *words, cwd=tmp_path).stdout
    assert said.startswith(f"trained\n{version}") and said.count(str(site)) == 2, said
    assert len(running.steps_in(tmp_path / "steps.jsonl")) == 3
    (tmp_path / "build" / "python").mkdir(parents=True)
    for part in ("gradvane", "gradvane.libs"):
        (tmp_path / "build" / "python" / part).symlink_to(site / part)
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/python/hooks/optimizers_test.py"], cwd=SOURCE,
        env={**os.environ, **environment, "GRADVANE_BUILD_DIR": str(tmp_path / "build")}, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0 and " passed" in done.stdout and "skipped" not in done.stdout, done.stdout + done.stderr


def test_the_wheel_carries_what_it_needs_and_no_path_of_this_machine(tmp_path, wheel):
    tag = re.search(r"-manylinux_2_(\d+)_x86_64\.whl$", wheel.name)
    assert tag and int(tag[1]) <= 34, f"{wheel.name}: RHEL 9 has glibc 2.34"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    assert wheel.stat().st_size < 25e6
    carried = {path.name.split("-")[0] for path in (tmp_path / "gradvane.libs").iterdir()}
    assert carried == {"libprometheus", "libyaml"}
    native = sorted((tmp_path / "gradvane").glob("_native*.so"))
    recording = sorted((tmp_path / "gradvane").glob("_recording*.so"))
    versions = [re.search(r"cpython-3(\d+)", library.name)[1] for library in native]
    assert {str(sys.version_info.minor), "13"} >= set(versions) and len(recording) == len(native)
    others = [tmp_path / "gradvane" / name for name in ("libgradvane_inject.so", "libgradvane_tls.so")]
    for library in (*native, *recording, *others):
        dynamic = run("readelf", "-d", library).stdout
        place = "$ORIGIN" if library.name == "libgradvane_tls.so" else "$ORIGIN:$ORIGIN/../gradvane.libs"  # it needs none of them
        assert re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic) == [place]
        assert str(SOURCE).encode() not in library.read_bytes()
        needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
        assert not [name for name in needed if "gtest" in name or "benchmark" in name]
        assert not [name for name in needed if "torch" in name or "python" in name], "beside any torch"
        if library not in native:  # it goes into programs that have neither
            assert not [name for name in needed if "cuda" in name]


def licences_of(notices: str) -> dict[str, str]:
    """Software of which the wheel contains something -> the file with its text."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in notices.splitlines() if line.startswith("|")]
    return {row[0]: found[1] for row in rows if len(row) == 4 and (found := re.search(r"\]\(LICENSES/(.*?)\)", row[3]))}


def test_the_wheel_carries_the_text_of_each_licence_that_asks_for_it(tmp_path, wheel):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    (folder,) = tmp_path.glob("gradvane-*.dist-info/licenses")
    texts = {path.name: path.read_text() for path in (folder / "LICENSES").iterdir()}
    named = licences_of((folder / "THIRD_PARTY_NOTICES.md").read_text())
    assert set(named.values()) == set(texts), "each text is named, and each that is named is there"
    assert set(named) == {"CUDA runtime", "prometheus-cpp (core)", "Boost (Asio, Beast and what they need)", "yaml-cpp",
                          "nlohmann/json", "pybind11", "Preact", "uPlot", "OpenSSL", "crypt (libxcrypt)"}
    for name, text in texts.items():
        assert re.search("Permission is hereby granted|Redistribution and use in source and binary forms|End User License|"
                         "TERMS AND CONDITIONS FOR USE, REPRODUCTION|GNU LESSER GENERAL PUBLIC LICENSE", text), name
        assert "Copyright" in text or name == "boost.txt", name
        assert len(text.splitlines()) > 15, name
    assert "Apache License" in (folder / "LICENSE").read_text()
    # What is in the wheel is in the table: its libraries, and what the native parts were compiled from.
    for library in (tmp_path / "gradvane.libs").iterdir():
        assert any(library.name.startswith(f"lib{name.split()[0]}") for name in named), library.name
    code = b"".join(path.read_bytes() for path in (tmp_path / "gradvane").glob("_*.so"))
    for trace, name in ((b"nlohmann", "nlohmann/json"), (b"boost", "Boost (Asio, Beast and what they need)"),
                        (b"pybind11", "pybind11")):
        assert trace in code and name in named


def test_without_torch_it_says_so_and_the_script_runs_all_the_same(tmp_path, wheel):
    bin_folder = new_environment(tmp_path / "venv", torch=False)
    run(bin_folder / "pip", "install", "--quiet", "--no-deps", wheel)
    done = run(bin_folder / "python", "-c", "import gradvane; gradvane.attach()", cwd=tmp_path, check=False)
    assert "GradvaneError: gradvane needs torch 2.9 or newer, and there is no torch" in done.stderr
    script = running.write(tmp_path, "print('no torch here')")
    assert run(bin_folder / "gradvane", "run", script, cwd=tmp_path).stdout == "no torch here\n"
    done = run(bin_folder / "gradvane", "replay", script, cwd=tmp_path, check=False)
    assert "this is no recording of Gradvane" in done.stderr, "recordings are read without it"


def test_an_older_torch_is_refused_with_a_sentence_before_anything_is_loaded(tmp_path):
    done = running.python("-c", """if True:
        import torch
        torch.__version__ = "2.8.0+cu128"
        import sys, gradvane
        try:
            gradvane.attach()
        except gradvane.GradvaneError as error:
            print(error)
        print("gradvane._native" in sys.modules)
        """, cwd=tmp_path)
    assert done.stdout == "gradvane needs torch 2.9 or newer; this is torch 2.8.0+cu128\nFalse\n"


@pytest.mark.parametrize("version", ["2.9.1", "2.11.0+cu130", "2.15.0a0+git1234", "3.0.0"])
def test_every_torch_from_2_9_on_is_taken(version):
    from gradvane._loading import OLDEST_TORCH, release

    assert release(version) >= OLDEST_TORCH


def test_a_torch_whose_tensors_cannot_be_found_is_refused_with_a_sentence(tmp_path):
    """The objects of a torch to come may look otherwise: then nothing is read from a wrong place."""
    done = running.python("-c", """if True:
        import torch
        real = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors
        other = [torch.empty(7) for _ in range(6)]
        torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors = lambda tensors: real(other)
        import gradvane
        try:
            gradvane.attach()
        except gradvane.GradvaneError as error:
            print(error)
        """, cwd=tmp_path)
    assert "this torch is newer than gradvane; install a newer gradvane" in done.stdout


def test_types_are_declared_and_hold(tmp_path):
    pytest.importorskip("mypy", reason="make deps brings it")
    done = run(sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "--config-file", SOURCE / "pyproject.toml",
               SOURCE / "python" / "gradvane", cwd=SOURCE, check=False)
    assert done.returncode == 0, done.stdout
    user = running.write(tmp_path, """
        import gradvane
        agent = gradvane.attach(run="x", port=0, mode="immediate")
        record = agent.last_step
        if record is not None:
            reveal_type(record.grad_norm)
        gradvane.attach(prot=1)
        """)
    # The project's configuration leaves torch's own sources out, which take mypy 15 s.
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "--config-file", SOURCE / "pyproject.toml", user],
                          cwd=tmp_path, text=True, capture_output=True, env={**os.environ, "MYPYPATH": str(SOURCE / "python")})
    assert 'Revealed type is "Union[builtins.float, None]"' in done.stdout or '"float | None"' in done.stdout or "float | None" in done.stdout
    assert 'Unexpected keyword argument "prot"' in done.stdout


def test_the_options_of_python_are_those_of_the_native_part():
    from gradvane._loading import native
    from gradvane.options import KEYS

    assert sorted(native().option_keys()) == sorted(KEYS)
