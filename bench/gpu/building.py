"""From a bare machine to programs: unpacks the bundle where libraries are missing, finds torch and the CUDA
toolkit, configures the preset gpu for this device alone, and builds the targets that a stage asks for."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import machine
from process import ROOT, StageError, run, run_or_fail, say

BUILD = ROOT / "build" / "gpu"
PREFIX = ROOT / "build" / "gpu-prefix"
# One header of each library that find_package asks for, or that is included without.
HEADERS = ("boost/beast.hpp", "nlohmann/json.hpp", "prometheus/registry.h", "yaml-cpp/yaml.h", "CLI/CLI.hpp",
           "gtest/gtest.h", "gmock/gmock.h", "benchmark/benchmark.h", "zlib.h")
GPU_TESTS_TO_SANITIZE = ("cuda_pass_test", "cuda_packed_test")
PACKAGE = ("gradvane_package", "gradvane_inject")
DEFAULT_ARCHITECTURE = "90"  # where no device says what it is: a rehearsal
LIST_GPU_TESTS = ("-N", "-L", "^gpu$", "--show-only=json-v1")


def gpu_test_names(listing):
    """Of what ctest prints with LIST_GPU_TESTS."""
    return [test["name"] for test in json.loads(listing)["tests"]]


def missing_headers():
    lines = [f'#if !__has_include(<{name}>)\nmissing "{name}"\n#endif' for name in HEADERS]
    done = subprocess.run(["c++", "-E", "-P", "-x", "c++", "-"], input="\n".join(lines),
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StageError(f"the C++ compiler does not work: {done.stderr[-500:]}")
    return re.findall(r'missing "(.*)"', done.stdout)


def is_older(version, than):
    return [int(part) for part in version.split(".")] < [int(part) for part in than.split(".")]


def unpack_bundle(log, deadline):
    """All packages into PREFIX, once for each bundle."""
    packages = sorted(machine.BUNDLE.glob("*.deb"))
    if not packages:
        raise StageError("C++ libraries are missing here, and there is no .deps/gpu-bundle. Run "
                         "`make gpu-bundle` where there is a network, and bring that folder along.")
    about = machine.bundle()
    stamp = hashlib.sha256("".join(f"{p.name} {p.stat().st_size}\n" for p in packages).encode()).hexdigest()
    if (PREFIX / "stamp").is_file() and (PREFIX / "stamp").read_text() == stamp:
        return
    if os.uname().machine != about.get("machine"):
        raise StageError(f"the bundle is for {about.get('machine')}, this machine is {os.uname().machine}")
    here = os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
    if is_older(here, about["glibc"]):
        say(f"warning: the bundle's libraries are those of {about['system']}, made for glibc "
            f"{about['glibc']}; here it is {here}. If linking fails with undefined GLIBC symbols, make the "
            "bundle on an older system.")
    if not shutil.which("dpkg"):
        raise StageError("the bundle is Debian packages, and there is no dpkg here to unpack them")
    shutil.rmtree(PREFIX, ignore_errors=True)
    PREFIX.mkdir(parents=True)
    for package in packages:
        run_or_fail(f"unpacking {package.name}", ["dpkg", "-x", package, PREFIX], log, deadline)
    # Links that name the place where the package would be installed.
    for path in PREFIX.rglob("*"):
        if path.is_symlink() and os.readlink(path).startswith("/"):
            target = PREFIX / os.readlink(path)[1:]
            if target.exists():
                path.unlink()
                path.symlink_to(target)
    (PREFIX / "stamp").write_text(stamp)


# ---- the toolkit ----------------------------------------------------------------------------------

# What torch's CMake scripts, its headers and our tests ask for beside the compiler.
TOOLKIT_HEADERS = ("cuda_runtime_api.h", "cuda.h", "nvrtc.h", "cublas_v2.h", "cufft.h", "curand.h", "cupti.h")
TOOLKIT_LIBRARIES = ("libcudart.so", "libnvrtc.so", "libcublas.so", "libcufft.so", "libcurand.so",
                     "libcupti.so")


def toolkit_root():
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"),
              nvcc and Path(nvcc).resolve().parents[1], "/usr/local/cuda"]
    for place in places:
        if place and os.access(Path(place) / "bin" / "nvcc", os.X_OK):
            return Path(place).absolute()
    raise StageError("there is no CUDA compiler: put nvcc on the PATH, or name the toolkit with CUDA_HOME")


def toolkit_trees(root):
    return [root, root / "targets" / f"{os.uname().machine}-linux", root / "extras" / "CUPTI"]


def lacks(trees):
    def there(folders, name):
        return any((tree / folder / name).exists() for tree in trees for folder in folders)
    return ([name for name in TOOLKIT_HEADERS if not there(["include"], name)] +
            [name for name in TOOLKIT_LIBRARIES if not there(["lib64", "lib"], name)])


def link_all(source, into):
    """Links to what `source` holds and `into` does not; the first tree that has a name gives it."""
    for path in sorted(source.iterdir()) if source.is_dir() else ():
        if not os.path.lexists(into / path.name):
            (into / path.name).symlink_to(path.absolute())
        plain = path.name.split(".so.")[0] + ".so"
        if ".so." in path.name and not os.path.lexists(into / plain):
            (into / plain).symlink_to(path.absolute())


def complete_toolkit(root, torch_dir):
    """The toolkit, or a folder of links to it and to the CUDA libraries that torch brings."""
    trees = toolkit_trees(root)
    missing = lacks(trees)
    if not missing:
        return root
    overlay = BUILD.parent / "gpu-toolkit"
    shutil.rmtree(overlay, ignore_errors=True)
    trees.append(torch_dir.parent / "nvidia" / "cu13")
    for folder in ("bin", "include", "lib64"):  # bin must be a real folder, or nvcc follows the link
        (overlay / folder).mkdir(parents=True)
    for tree in trees:
        link_all(tree / "bin", overlay / "bin")
        link_all(tree / "include", overlay / "include")
        link_all(tree / "lib64", overlay / "lib64")
        link_all(tree / "lib", overlay / "lib64")
        if (tree / "nvvm").is_dir() and not (overlay / "nvvm").exists():
            (overlay / "nvvm").symlink_to((tree / "nvvm").absolute())
    (overlay / "lib").symlink_to("lib64")
    # nvcc.profile of an installed toolkit names this folder.
    (overlay / "targets").mkdir()
    (overlay / "targets" / f"{os.uname().machine}-linux").symlink_to("..")
    say(f"{root} lacks {', '.join(missing)}: taking torch's")
    still = lacks([overlay])
    if still:
        say(f"warning: torch brings no {', '.join(still)} either")
    return overlay


# ---- CMake ----------------------------------------------------------------------------------------


class Build:
    """Made by the first stage that needs it; the others build further targets in it."""

    def __init__(self, about, log):
        self.about, self.log = about, log
        self.cuda_root = None
        self.configured = False
        self.notes = {}

    package = BUILD / "python"
    """the folder to import gradvane from"""

    def program(self, name):
        return BUILD / "bin" / name

    def configure(self, deadline):
        if self.configured:
            return
        cmake = re.search(r"(\d+)\.(\d+)", self.about["cmake"] or "")
        if not cmake or (int(cmake[1]), int(cmake[2])) < (3, 25):
            raise StageError(f"CMake 3.25 is needed, here is: {self.about['cmake']}")
        if not shutil.which("ninja"):
            raise StageError("there is no ninja")
        import torch
        torch_dir = Path(torch.__file__).resolve().parent
        self.cuda_root = complete_toolkit(toolkit_root(), torch_dir)
        settings = {
            "GRADVANE_TORCH_DIR": torch_dir,
            "GRADVANE_CUDA_ROOT": self.cuda_root,
            "GRADVANE_VENV_PYTHON": sys.executable,
            "GRADVANE_SERVERS_DIR": "",
            "GRADVANE_WERROR": "OFF",  # another compiler may warn of what ours does not
            "CMAKE_CUDA_ARCHITECTURES": self.about["architecture"] or DEFAULT_ARCHITECTURE,
            "GRADVANE_PAGE": "OFF",  # needs Node and its packages
        }
        if int(cmake[1]) >= 4:  # some package files say that they are for a CMake before 3.5
            settings["CMAKE_POLICY_VERSION_MINIMUM"] = "3.5"
        missing = missing_headers()
        if missing or os.environ.get("GRADVANE_GPU_BUNDLE") == "always":
            say(f"taking C++ libraries from the bundle; missing here: {', '.join(missing) or 'none'}")
            unpack_bundle(self.log, deadline)
            include = PREFIX / "usr" / "include"
            settings |= {"CMAKE_PREFIX_PATH": PREFIX / "usr",
                         # Boost and nlohmann/json have no target: they lie where the compiler looks.
                         "CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES": include,
                         "CMAKE_CUDA_STANDARD_INCLUDE_DIRECTORIES": include}
        nvcc = re.search(r"V(\d+\.\d+\.\d+)", machine.ask(str(self.cuda_root / "bin" / "nvcc"), "--version"))
        self.notes = {"libraries_missing": missing, "cuda_root": str(self.cuda_root),
                      "nvcc": nvcc.group(1) if nvcc else None,
                      "architecture": settings["CMAKE_CUDA_ARCHITECTURES"]}
        say("configuring")
        run_or_fail("cmake", ["cmake", "--preset", "gpu", *(f"-D{k}={v}" for k, v in settings.items())],
                    self.log, deadline)
        self.configured = True

    def gpu_tests(self, deadline):
        done = run_or_fail("ctest -N", ["ctest", "--test-dir", BUILD, *LIST_GPU_TESTS], self.log, deadline)
        return gpu_test_names(done.out)

    def build(self, targets, deadline):
        """Targets by name. A test that is a Python script needs the package, and one of the harm suite what is loaded into
        programs."""
        self.configure(deadline)
        known = run_or_fail("ninja", ["ninja", "-C", BUILD, "-t", "targets", "all"], self.log, deadline).out
        names = set(re.findall(r"^([\w.-]+): phony$", known, re.MULTILINE))
        scripts = [name for name in targets if name.startswith(("python_", "harm_")) and name not in names]
        wanted = sorted(set(targets) - set(scripts) | (set(PACKAGE) if scripts else set()))
        if not set(wanted) <= names:
            raise StageError(f"there is no target {', '.join(sorted(set(wanted) - names))}")
        # A file that includes torch's headers takes up to 1.5 GB to compile.
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        jobs = os.environ.get("JOBS") or max(1, min(self.about["cores"], memory // (2 << 30)))
        say(f"building {', '.join(wanted)} with {jobs} jobs")
        done = run(["cmake", "--build", BUILD, "--parallel", jobs, "--target", *wanted], self.log, deadline)
        if done.timed_out:
            raise StageError(f"the build was not done after {done.seconds:.0f} s")
        if done.code != 0:
            at = done.out.find("FAILED:")  # ninja stops at the first one, and says why
            raise StageError("the build failed:\n" + (done.out[at:at + 4000] if at >= 0 else done.tail()))
        say(f"built in {done.seconds:.0f} s")
        return done.seconds
