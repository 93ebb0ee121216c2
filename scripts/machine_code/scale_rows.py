"""The numbers of the machine code of a clip: a row for each of its hot loops, and one of what a thread takes.

A row is named "clip bf16 block": dtype, and who works together, as in sass_rows.py. A loop takes eight vectors: it has
all of them under way before it touches one, and writes them again.
"""

import re

from sass_paths import Code, Loop, SassError, load_stride
from sass_rows import DTYPES, ELEMENTS, LOADS, TEAMS, hot_loops, of_both, way_row

KERNEL = re.compile(r"scale_tensorsILm(\d+)E")
EXPECTED = {f"clip {dtype} {team}" for dtype in DTYPES for team in TEAMS.values()}


def dtype_of(loop: Loop) -> str:
    """By the instruction that multiplies, and by the one that rounds to 16 bits."""
    opcodes = {it.opcode for it in loop.instructions()}
    if "DMUL" in opcodes:
        return "f64"
    narrow = [opcode for opcode in opcodes if opcode.startswith(("F2FP.", "F2F."))]
    if any("BF16" in opcode for opcode in narrow):
        return "bf16"
    return "f16" if narrow else "f32" if "FMUL" in opcodes else ""


def loop_rows(code: Code) -> dict[str, dict]:
    """Of all hot loops. Raises SassError unless they are those that are expected."""
    rows: dict[str, dict] = {}
    for loop in hot_loops(code):
        held, paths = loop.instructions(), loop.paths()
        dtype = dtype_of(loop)
        team = TEAMS.get(load_stride([it for it in held if it.is_wide_load]), "")
        name = f"clip {dtype} {team}"
        stores = sum(it.name == "STG" and "128" in it.opcode for it in held)
        if name not in EXPECTED or name in rows or stores != LOADS or len(paths) != 1:
            raise SassError(f"{code.name}: the loop at instruction {loop.head} is none of ours: '{name}', {stores} "
                            f"stores, {len(paths)} ways through it")
        rows[name] = way_row(paths[0], ELEMENTS[dtype], sum(it.is_local for it in held))
    if missing := EXPECTED - set(rows):
        raise SassError(f"{code.name}: no loop found for {', '.join(sorted(missing))}")
    return rows


def scale_rows(codes: list[Code], resources: dict[str, dict], arch: str) -> tuple[dict[str, dict], list[str]]:
    """As kernel_rows() of sass_rows.py."""
    return of_both(codes, resources, arch, KERNEL,
                   lambda code: {**loop_rows(code), "clip kernel": resources[code.name]})
