#!/usr/bin/env python3
"""Counts the machine instructions of the CUDA kernels, and compares them with docs/internals/sass.json.

They are compiled for each architecture with the flags of the build, disassembled, and their hot
loops are found (machine_code/). No GPU is needed. The check fails where a number got worse, or
misses a bar. `--objects` takes the machine code of objects of a release build instead of compiling.
`--write` writes docs/internals/sass.json and the table in docs/internals/kernel.md again.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "machine_code"))

from sass_paths import SassError, parse  # noqa: E402
from sass_rows import (DTYPES, FEWER_IS_WORSE, MORE_IS_WORSE, kernel_rows,  # noqa: E402
                       resource_rows, usage_rows)
from scale_rows import scale_rows  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {"cuda_pass.cu": kernel_rows, "cuda_scale.cu": scale_rows}  # in kernels/device
TABLE = ROOT / "docs" / "internals" / "sass.json"
PAGE = ROOT / "docs" / "internals" / "kernel.md"
BEGIN = "<!-- sass: begin, written by scripts/sass.py --write -->"
END = "<!-- sass: end -->"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")  # as in cmake/cuda.cmake
# As CMake has them for a release: cmake/cuda.cmake, kernels/CMakeLists.txt.
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "-fmad=false", "--expt-relaxed-constexpr", f"-I{ROOT}"]


@dataclass(frozen=True)
class Bar:
    rows: str  # pattern of their whole names
    field: str
    at_most: float | None = None
    at_least: float | None = None

    def missed(self, row: dict) -> str:
        value = row[self.field]
        if self.at_most is not None and value > self.at_most:
            return f"{self.field} {value:g}, the bar is {self.at_most:g} at most"
        if self.at_least is not None and value < self.at_least:
            return f"{self.field} {value:g}, the bar is {self.at_least:g} at least"
        return ""


# What the kernel must keep, whatever docs/internals/sass.json says. fp64 has none of its own: a vector
# holds only two elements, and memory is the limit long before instructions are.
BARS = (
    Bar(r"sm_90 b?f16 \w+ plain", "per_element", at_most=5.2),
    Bar(r"sm_90 b?f16 \w+ counting", "per_element", at_most=6.8),
    Bar(r"sm_90 f32 \w+ plain", "per_element", at_most=6.25),
    Bar(r"sm_90 f32 \w+ counting", "per_element", at_most=8.75),
    Bar(r"sm_90 (b?f16|f32) \w+ \w+", "loads_in_flight", at_least=8),
    # Where data is sick, issuing comes on top of reading: 14 of a 16-bit element, or 28 of fp32, are as long as the read (H200).
    Bar(r"sm_90 b?f16 careful", "per_element", at_most=14),
    Bar(r"sm_90 b?f16 nonfinite", "per_element", at_most=22),
    Bar(r"sm_90 b?f16 broken", "per_element", at_most=12),
    Bar(r"sm_90 f32 careful", "per_element", at_most=20),
    Bar(r"sm_90 f32 nonfinite", "per_element", at_most=34),
    Bar(r"sm_90 f32 broken", "per_element", at_most=23),
    Bar(r"\w+ (b?f16|f32) (careful|nonfinite|broken)", "prefetches", at_least=1),
    Bar(r"sm_90 kernel", "registers", at_most=80),
    Bar(r"\w+ kernel", "spill_bytes", at_most=0),
    # Before the host may look; a ticket for a tensor's parts, and one for the end.
    Bar(r"\w+ kernel", "system_fences", at_most=1),
    Bar(r"\w+ kernel", "device_fences", at_most=2),
    # Each is some 0.2 us of a read, however small; one less in each stretch would be more instructions.
    Bar(r"\w+ tail start", "waits", at_most=5),
    Bar(r"\w+ tail join", "waits", at_most=4),
    Bar(r"\w+ tail end", "waits", at_most=7),
    Bar(r"\w+ tail join", "system_fences", at_most=0),
    Bar(r"\w+ \w+ (block|warp) .+", "local_accesses", at_most=0),
    # A clip reads and writes four bytes of a 16-bit element: at 3 instructions memory is the limit by far.
    Bar(r"\w+ clip \w+ \w+", "loads_in_flight", at_least=8),
    Bar(r"\w+ clip (b?f16|f32) \w+", "per_element", at_most=3),
    Bar(r"\w+ clip \w+ \w+", "local_accesses", at_most=0),
    Bar(r"sm_90 clip kernel", "registers", at_most=80),
    Bar(r"\w+ clip kernel", "spill_bytes", at_most=0),
)


def missed_bars(rows: dict, bars=BARS) -> list[str]:
    missed = []
    for bar in bars:
        judged = [name for name in rows if re.fullmatch(bar.rows, name)]
        if not judged:
            missed.append(f"{bar.rows}: there is no such row, so its bar judges nothing")
        missed += [f"{name}: {what}" for name in judged if (what := bar.missed(rows[name]))]
    return missed


def compare(table: dict, rows: dict) -> tuple[list[str], list[str]]:
    """What is worse than in the table, and what is otherwise different."""
    worse, other = [], []
    for name in sorted({*table, *rows}):
        if name not in rows or name not in table:
            worse.append(f"{name}: {'new' if name in rows else 'gone'}")
            continue
        for field in sorted({*table[name], *rows[name]} - {"per_element"}):
            was, now = table[name].get(field), rows[name].get(field)
            if was == now:
                continue
            line = f"{name}: {field} {was} -> {now}"
            is_worse = (was is None or now is None or (field in MORE_IS_WORSE and now > was) or
                        (field in FEWER_IS_WORSE and now < was))
            (worse if is_worse else other).append(line)
    return worse, other


def to_json(nvcc: str, rows: dict) -> str:
    """A row a line: a change shows as what it is."""
    lines = [f"    {json.dumps(name)}: {json.dumps(rows[name], sort_keys=True)}"
             for name in sorted(rows)]
    return f'{{\n  "nvcc": {json.dumps(nvcc)},\n  "rows": {{\n' + ",\n".join(lines) + "\n  }\n}\n"


WAYS = (("plain", "no zeros"), ("counting", "zeros counted"),
        ("subnormals", "zeros and subnormals counted"))
KERNEL_FIELDS = (("registers", "registers of a thread"), ("spill_bytes", "bytes spilled"),
                 ("stack_bytes", "bytes of stack"), ("shared_bytes", "bytes of shared memory"),
                 ("resident_blocks", "blocks on a multiprocessor"), ("system_fences", "fences to the host's memory"),
                 ("device_fences", "fences on the device"), ("barriers", "barriers of a block"))
TAIL = (("start", "before the first data"), ("join", "from a tensor's last part to the last of all"),
        ("end", "from there to the end"))
TAIL_FIELDS = (("waits", "waits for memory"), ("barriers", "barriers"))


def to_markdown(nvcc: str, rows: dict) -> str:
    def per_element(arch: str, dtype: str, way: str) -> str:
        cells = [f"{rows[f'{arch} {dtype} {team} {way}'.strip()]['per_element']:.2f}"
                 for team in ("block", "warp")]
        return cells[0] if cells[0] == cells[1] else " / ".join(cells)

    def in_flight(arch: str, dtype: str) -> str:
        return str(min(row["loads_in_flight"] for name, row in rows.items()
                       if name.startswith(f"{arch} {dtype} ") and "loads_in_flight" in row))

    def line(title: str, cell) -> str:
        return f"| {title} | " + " | ".join(cell(arch) for arch in ARCHITECTURES) + " |"

    first = ARCHITECTURES[0]
    lines = [f"Machine instructions per element as nvcc {nvcc} makes them, loads and loop control "
             "included. Where two", "numbers stand, the second is for tensors that one warp reads.",
             "", line("", lambda arch: arch), "|---" * (len(ARCHITECTURES) + 1) + "|"]
    for dtype in sorted(DTYPES):
        for way, title in WAYS:
            if f"{first} {dtype} block {way}" in rows:
                lines.append(line(f"{dtype}, {title}", lambda arch: per_element(arch, dtype, way)))
        for way, title in (("careful", "read carefully"), ("nonfinite", "the same, with NaN or infinity"),
                           ("broken", "the same, with nothing else")):
            if f"{first} {dtype} {way}" in rows:
                lines.append(line(f"{dtype}, {title}", lambda arch: f"{rows[f'{arch} {dtype} {way}']['per_element']:.2f}"))
        lines.append(line(f"{dtype}, read exactly",
                          lambda arch: str(rows[f"{arch} {dtype} exact"]["instructions"])))
    for dtype in sorted(DTYPES):
        lines.append(line(f"{dtype}, clipped", lambda arch: per_element(f"{arch} clip", dtype, "")))
    for dtype in sorted(DTYPES):
        lines.append(line(f"{dtype}, loads before the first use",
                          lambda arch: in_flight(arch, dtype)))
    for field, title in KERNEL_FIELDS:
        lines.append(line(title, lambda arch: str(rows[f"{arch} kernel"][field])))
    for stretch, title in TAIL:
        for field, what in TAIL_FIELDS:
            lines.append(line(f"{title}: {what}", lambda arch: str(rows[f"{arch} tail {stretch}"][field])))
    lines.append(line("registers of a thread that clips", lambda arch: str(rows[f"{arch} clip kernel"]["registers"])))
    return "\n".join(lines)


def with_table(page: str, table: str) -> str:
    """`page` with what stands between its markers replaced."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise SassError(f"{PAGE.name} must hold these lines, once, in this order:\n{BEGIN}\n{END}")
    return page[:page.index(BEGIN)] + f"{BEGIN}\n{table}\n{END}" + page[page.index(END) + len(END):]


def setting(name: str) -> str:
    """From the environment, or from what `make deps` wrote."""
    if os.environ.get(name):
        return os.environ[name]
    file = ROOT / ".deps" / "env.sh"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    found = re.search(rf"^{name}='([^']+)'", text, re.MULTILINE)
    return found[1] if found else ""


def find_tools() -> tuple[Path, Path]:
    toolkit = setting("GRADVANE_CUDA_ROOT")
    if not toolkit or not (Path(toolkit) / "bin" / "nvcc").is_file():
        raise SassError("there is no nvcc: run `make deps`, or set GRADVANE_CUDA_ROOT to a toolkit")
    python = Path(setting("GRADVANE_VENV_PYTHON") or ROOT / ".deps" / "venv" / "bin" / "python")
    # Triton's, because the compiler's wheels bring none.
    triton = "lib/python3*/site-packages/triton/backends/nvidia/bin/nvdisasm"
    found = [*python.parents[1].glob(triton), Path(toolkit) / "bin" / "nvdisasm"]
    for nvdisasm in found:
        if nvdisasm.is_file():
            return Path(toolkit) / "bin" / "nvcc", nvdisasm
    raise SassError("there is no nvdisasm: neither with Triton nor in the CUDA toolkit")


def run(*command: str | Path, folder: str | None = None) -> tuple[str, str]:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        raise SassError(f"{Path(command[0]).name} failed:\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def count(nvcc: Path, nvdisasm: Path, built: list[Path]) -> tuple[dict, list[str]]:
    """All rows, and notes on them. `built`: objects with the machine code for all architectures, one for each source;
    none: they are compiled."""
    rows: dict[str, dict] = {}
    notes: list[str] = []
    objects = {path.name.removesuffix(".o"): path for path in built}
    if built and set(objects) != set(SOURCES):
        raise SassError(f"not the objects of {' and '.join(SOURCES)}: {', '.join(map(str, built))}")
    for source, rows_of in SOURCES.items():
        with tempfile.TemporaryDirectory() as folder:
            if built:
                run(nvdisasm.with_name("cuobjdump"), "-xelf", "all", objects[source].resolve(), folder=folder)
            for arch in ARCHITECTURES:
                try:
                    cubin, resources = (taken_out(nvdisasm, Path(folder), arch) if built else
                                        compiled(nvcc, source, Path(folder), arch))
                    code, _ = run(nvdisasm, "-c", cubin)
                    found, said = rows_of(parse(code), resources, arch)
                except SassError as error:
                    raise SassError(f"{source}, {arch}: {error}") from error
                rows.update(found)
                notes += said
    return rows, notes


def compiled(nvcc: Path, source: str, folder: Path, arch: str) -> tuple[Path, dict]:
    cubin = folder / f"{arch}.cubin"
    out, err = run(nvcc, *FLAGS, f"-arch={arch}", "-cubin", "-Xptxas", "-v", ROOT / "kernels" / "device" / source, "-o", cubin)
    return cubin, resource_rows(out + err, arch)


def taken_out(nvdisasm: Path, folder: Path, arch: str) -> tuple[Path, dict]:
    found = list(folder.glob(f"*.{arch}.cubin"))
    if len(found) != 1:
        raise SassError(f"the object holds {len(found)} pieces of machine code")
    return found[0], usage_rows(run(nvdisasm.with_name("cuobjdump"), "-res-usage", found[0])[0], arch)


def write(nvcc: str, rows: dict) -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(page, to_markdown(nvcc, rows)), encoding="utf-8")
    TABLE.write_text(to_json(nvcc, rows), encoding="utf-8")


def judge(nvcc: str, rows: dict, table: dict, pinned: str) -> tuple[list[str], list[str]]:
    """Faults, and what is to be said besides."""
    faults, notes = missed_bars(rows), []
    if table["nvcc"] != nvcc:
        # Another compiler's numbers are no change of ours; but the table must be of the pinned one.
        said = f"docs/internals/sass.json is of nvcc {table['nvcc']}, this is {nvcc}: only bars were checked"
        (faults if nvcc == pinned else notes).append(said)
        return faults, notes
    worse, other = compare(table["rows"], rows)
    faults += worse
    if other:
        notes += [*other, "not worse: have it written down with scripts/sass.py --write"]
    return faults, notes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the tables in docs/ anew")
    parser.add_argument("--objects", type=Path, nargs="+", default=[], help="of a release build: kernels/…/cuda_*.cu.o")
    arguments = parser.parse_args()
    try:
        tools = find_tools()
        release = re.search(r"\bV(\d+\.\d+\.\d+)", run(tools[0], "--version")[0])
        nvcc = release[1] if release else "unknown"
        rows, notes = count(*tools, arguments.objects)
        if arguments.write:
            write(nvcc, rows)
            faults = missed_bars(rows)
        else:
            table = json.loads(TABLE.read_text(encoding="utf-8"))
            pin = re.search(r"^CUDA_NVCC_VERSION=(\S+)", (ROOT / "versions.env").read_text(), re.M)
            faults, said = judge(nvcc, rows, table, pin[1] if pin else nvcc)
            notes += said
            shown = to_markdown(table["nvcc"], table["rows"])
            page = PAGE.read_text(encoding="utf-8")
            if with_table(page, shown) != page:
                faults.append("docs/internals/kernel.md does not show docs/internals/sass.json")
    except (SassError, OSError, ValueError) as error:
        print(f"[sass] {error}", file=sys.stderr)
        return 1
    for note in notes:
        print(f"[sass] {note}")
    for fault in faults:
        print(f"[sass] FAIL {fault}")
    print(f"[sass] {len(rows)} rows, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
