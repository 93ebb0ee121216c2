"""The units compiled for AVX2 and AVX-512 define nothing that the linker could share.

An inline function that such a unit emits is a weak symbol: of all copies the linker keeps one, and a
processor without those instructions would die in it.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

UNITS = [Path(path) for path in os.environ.get("GRADVANE_KERNEL_OBJECTS", "").split(":")
         if Path(path).name.startswith(("cpu_avx2.", "cpu_avx512."))]
# W and w: weak, u: unique. V is a weak object: data runs nowhere.
WEAK_FUNCTION = re.compile(r"^[0-9a-f]* +([Wwu]) +(.+)$", re.MULTILINE)


def shared_functions(nm_output: str) -> list[str]:
    # A weak reference (no address) is somebody else's definition; sanitizers have some.
    return [match[2] for match in WEAK_FUNCTION.finditer(nm_output)
            if match[0][0] != " " and match[1] != "w"]


def test_the_build_has_both_units():
    assert len(UNITS) == 2


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_vector_unit_defines_no_shared_function(unit):
    nm = subprocess.run(["nm", "--demangle", unit], capture_output=True, text=True, check=True)
    assert "ReadPart" in nm.stdout
    assert shared_functions(nm.stdout) == []


def test_a_shared_function_is_noticed(tmp_path):
    source = tmp_path / "unit.cpp"
    source.write_text("inline int twice(int x) { return 2 * x; }\nint (*keep)(int) = twice;\n")
    subprocess.run(["c++", "-c", "-o", tmp_path / "unit.o", source], check=True)
    nm = subprocess.run(["nm", "--demangle", tmp_path / "unit.o"], capture_output=True, text=True,
                        check=True)
    assert shared_functions(nm.stdout) == ["twice(int)"]
