"""Proof that `make lint` can fail: each kind of mistake, in a tree of its own, is found and named."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[1]))
PARTS = ["scripts/lint.sh", "scripts/lint/check_sources.py", "scripts/lint/standard_names.py",
         ".clang-format", ".clang-tidy", ".gitignore"]
TOOLS = ["python", "clang-format", "clang-tidy", "ruff"]
GOOD = "namespace gradvane {\nint twice(int value) { return 2 * value; }\n}  // namespace gradvane\n"


@pytest.fixture
def tree(tmp_path):
    for part in PARTS:
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / part, tmp_path / part)
    (tmp_path / ".deps/venv/bin").mkdir(parents=True)
    for tool in TOOLS:
        (tmp_path / ".deps/venv/bin" / tool).symlink_to(Path(sys.executable).with_name(tool))
    (tmp_path / "kernels").mkdir()
    write(tmp_path, "kernels/a.cpp", GOOD)
    (tmp_path / "build/release").mkdir(parents=True)
    command = {"directory": str(tmp_path), "file": str(tmp_path / "kernels/a.cpp"),
               "command": f"c++ -I{tmp_path} -std=c++20 -o a.o -c {tmp_path}/kernels/a.cpp"}
    (tmp_path / "build/release/compile_commands.json").write_text(json.dumps([command]))
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def write(tree: Path, name: str, text: str) -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(text)


def lint(tree: Path) -> tuple[int, str]:
    done = subprocess.run(["bash", "scripts/lint.sh"], cwd=tree, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_a_clean_tree_passes(tree):
    code, said = lint(tree)
    assert code == 0, said


MISTAKES = {
    "format": ("kernels/a.cpp", GOOD.replace("2 * value", "2*value")),
    "name": ("kernels/a.cpp", GOOD.replace("twice", "Twice")),
    "bug": ("kernels/a.cpp", GOOD.replace("2 * value", "sizeof(sizeof(value)) > 2")),
    "header": ("kernels/a.hpp", "#pragma once\ninline std::size_t one() { return 1; }\n"),
    "shell": ("scripts/a.sh", "#!/bin/bash\nrm -rf $1/*\n"),
    "undefined": ("kernels/b.py", "print(undefined)\n"),
    "imported": ("kernels/b.py", "import os\n"),
    "length": ("kernels/b.py", "x = 1\n" * 401),
    "path": ("a.txt", "see /" + "work/main/a.txt\n"),
    "unfinished": ("kernels/b.py", "# TO" + "DO: finish\n"),
    "blanks": ("kernels/b.py", "x = 1  \n"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_and_named(tree, mistake):
    name, text = MISTAKES[mistake]
    if mistake == "shell" and not shutil.which("shellcheck"):
        pytest.skip("no shellcheck on this system")
    write(tree, name, text)
    code, said = lint(tree)
    assert code != 0 and name in said, said


def test_sources_that_are_compiled_together_are_checked_together(tree):
    together = tree / "build/release/Unity/unity_kernels_cxx.cxx"
    write(tree, "kernels/b.cpp", GOOD.replace("twice", "Thrice"))
    write(tree, together.relative_to(tree), "".join(
        f'#include "{tree}/kernels/{name}.cpp"\n' for name in "ab"))
    command = {"directory": str(tree), "file": str(together), "command": f"ccache c++ -I{tree} -std=c++20 -c {together}"}
    (tree / "build/release/compile_commands.json").write_text(json.dumps([command]))
    code, said = lint(tree)
    assert code != 0 and "Thrice" in said and "kernels/a.cpp, kernels/b.cpp" in said, said


def test_a_header_that_leans_on_what_its_source_includes_before_it_is_found(tree):
    name, text = MISTAKES["header"]
    write(tree, name, text)
    write(tree, "kernels/a.cpp", '#include <cstddef>\n\n#include "kernels/a.hpp"\n' + GOOD)
    code, said = lint(tree)
    assert code != 0 and name in said, said


HEADER_B = "#pragma once\n\n#include <cstddef>\n\nstruct Size {\n  std::size_t value;\n};\n"


def test_a_header_that_includes_nothing_for_a_name_of_ours_is_found(tree):
    write(tree, "kernels/b.hpp", HEADER_B)
    write(tree, "kernels/a.hpp", "#pragma once\ninline Size twice(Size size) { return {2 * size.value}; }\n")
    write(tree, "kernels/a.cpp", '#include "kernels/b.hpp"\n\n#include "kernels/a.hpp"\n' + GOOD)
    code, said = lint(tree)
    assert code != 0 and "kernels/a.hpp" in said and "Size" in said, said


def test_a_name_of_the_standard_library_may_come_with_a_header_of_ours(tree):
    write(tree, "kernels/b.hpp", HEADER_B)
    write(tree, "kernels/a.hpp", '#pragma once\n#include "kernels/b.hpp"\ninline std::size_t one() { return 1; }\n')
    code, said = lint(tree)
    assert code == 0, said
    assert "2 checked" in said, "a.cpp and a.hpp, and with this b.hpp"


def test_a_header_of_others_before_it_proves_nothing_of_ours(tree):
    write(tree, "kernels/a.hpp", "#pragma once\ninline int one(pthread_t) { return 1; }\n")
    write(tree, "kernels/a.cpp", '#include <pthread.h>\n\n#include "kernels/a.hpp"\n' + GOOD)
    code, said = lint(tree)
    assert code != 0 and "kernels/a.hpp" in said and "2 checked" not in said, said


def test_what_a_header_forgot_of_the_standard_library_is_named_with_its_header(tree):
    write(tree, "kernels/a.hpp", "#pragma once\n#include <cstdint>\n// not std::map\n"
                                 "std::int64_t sum(std::vector<int> of);\n")
    code, said = lint(tree)
    assert code != 0 and "std::vector is used" in said, said
    assert "std::map is used" not in said and "std::int64_t is used" not in said, said
    write(tree, "kernels/a.hpp", "#pragma once\n#include <string>\ninline pid_t parent(pid_t of) { return of; }\n")
    code, said = lint(tree)
    assert code != 0 and "pid_t is used" in said and "#include <sys/types.h>" in said, said
    write(tree, "kernels/a.hpp", "#pragma once\n#include <new>\ninline std::align_val_t one{1};\n")
    code, said = lint(tree)
    assert code != 0 and "add it to its header's row" in said, said


def test_a_header_that_a_source_includes_first_is_left_to_the_build(tree):
    write(tree, "kernels/a.hpp", "#pragma once\ninline int one() { return 1; }\n")
    write(tree, "kernels/a.cpp", '#include "kernels/a.hpp"\n' + GOOD)
    code, said = lint(tree)
    assert code == 0 and "1 checked" in said, said
