"""The numbers of the kernel's machine code: a row for each way through a hot loop, and some more.

A row is named "bf16 block plain": dtype, who reads together (the whole block or one warp), way:
  plain       groups without zeros
  counting    groups with zeros
  subnormals  fp16 groups with subnormal numbers
  careful     a group that the other ways refuse, two vectors of it; out of line
  nonfinite   the same, with NaN or infinity in them
  broken      the same, with nothing else in them
  exact       one element, a normal number, of what is no whole vector, or of fp64; out of line
One row, "kernel", is of what a thread and a block take, and of the fences and barriers in all of the code.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator

from sass_paths import (Code, Instruction, Loop, SassError, blocks_of, innermost, load_stride, loads_in_flight, loops)
from tail_rows import tail_rows

DTYPES = ("f32", "f64", "f16", "bf16")  # as numbered in kernels/dtype.hpp
ELEMENTS = {"f32": 32, "f64": 16, "f16": 64, "bf16": 64}  # of a thread's eight vectors
TEAMS = {0x1000: "block", 0x200: "warp"}  # by the distance between a thread's vectors
EXACT = re.compile(r"read_exactlyILNS\w*5DTypeE(\d)E")
CAREFUL = re.compile(r"read_carefullyILNS\w*5DTypeE(\d)E")
SUBNORMALS = re.compile(r"HSET2\.(\w+\.)*LT\b")  # they are counted in fp16 alone
KERNEL = re.compile(r"read_tensorsILm(\d+)E")
THREADS = 256
LOADS = 8

EXPECTED = {f"{dtype} {team} {way}" for dtype in DTYPES for team in TEAMS.values()
            for way in ("plain", "counting", "subnormals")
            if (way != "plain" or dtype != "f64") and (way != "subnormals" or dtype == "f16")}

# Registers and shared memory of a multiprocessor, and the latter's share that a block cannot have.
MULTIPROCESSOR = {
    "sm_80": {"registers": 65536, "shared": 164 * 1024, "warps": 64, "blocks": 32},
    "sm_90": {"registers": 65536, "shared": 228 * 1024, "warps": 64, "blocks": 32},
    "sm_100": {"registers": 65536, "shared": 228 * 1024, "warps": 64, "blocks": 32},
}
SHARED_OF_THE_SYSTEM = 1024  # a block
SHARED_STEP = 128
REGISTER_STEP = 256  # a warp
SCHEDULERS = 4  # each with a quarter of the registers


def resident_blocks(arch: str, registers: int, shared: int, threads: int = THREADS) -> int:
    limits = MULTIPROCESSOR[arch]
    warps = -(-threads // 32)
    of_a_warp = -(-registers * 32 // REGISTER_STEP) * REGISTER_STEP
    by_registers = limits["registers"] // SCHEDULERS // of_a_warp * SCHEDULERS // warps
    of_a_block = -(-(shared + SHARED_OF_THE_SYSTEM) // SHARED_STEP) * SHARED_STEP
    return min(by_registers, limits["shared"] // of_a_block, limits["warps"] // warps,
               limits["blocks"])


def dtype_by_arithmetic(loop: Loop) -> str:
    """Empty where the instructions are of no dtype that is known here."""
    opcodes = [it.opcode for it in loop.instructions()]
    names = {opcode.split(".")[0] for opcode in opcodes}
    packed = bool(names & {"HMNMX2", "VHMNMX"})
    if packed:
        return "f16" if any(opcode.startswith("HADD2.F32") for opcode in opcodes) else "bf16"
    if {"DSETP", "DFMA"} <= names and "FFMA" not in names:
        return "f64"
    if names & {"FMNMX", "FMNMX3"}:
        return "f32"
    return ""


def dtype_of(loop: Loop) -> str:
    """By the arithmetic; and by the function that the loop calls for what it refuses."""
    found = dtype_by_arithmetic(loop)
    called = {DTYPES[int(match[1])] for it in loop.instructions() if it.name == "CALL"
              if (match := EXACT.search(it.target) or CAREFUL.search(it.target))}
    if called and called != {found}:
        raise SassError(f"a loop at instruction {loop.head} computes in {found or 'no known dtype'}"
                        f", and calls a function for {', '.join(sorted(called))}")
    return found


def hot_loops(code: Code) -> list[Loop]:
    """The loops around eight 128-bit loads, and no more, none of them under a condition."""
    found = []
    for loop in innermost(loops(code), lambda it: it.is_wide_load):
        loads = [it for it in loop.instructions() if it.is_wide_load]
        if len(loads) == LOADS and not any(it.predicate for it in loads):
            found.append(loop)
    return found


def kind_of(path: list[Instruction]) -> str:
    """By the vote: a plain loop asks for zeros before it adds to the sums, and leaves if there are
    any; a counting one asks afterwards whether to stay. Empty where there is no vote, or no sum."""
    names = [it.name for it in path]
    votes = [i for i, name in enumerate(names) if name in ("VOTE", "VOTEU")]
    sums = [i for i, name in enumerate(names) if name == "DADD"]
    if not votes or not sums:
        return ""
    return "plain" if votes[0] < sums[-1] else "counting"


def way_row(path: list[Instruction], elements: int, local: int) -> dict:
    return {"instructions": len(path), "per_element": round(len(path) / elements, 4),
            "loads_in_flight": loads_in_flight(path), "local_accesses": local}


def loop_rows(code: Code) -> dict[str, dict]:
    """Of all hot loops. Raises SassError unless they are those that are expected."""
    rows: dict[str, dict] = {}
    for loop in hot_loops(code):
        held = loop.instructions()
        stride = load_stride([it for it in held if it.is_wide_load])
        dtype, team, paths = dtype_of(loop), TEAMS.get(stride, ""), loop.paths()
        kind = kind_of(paths[0]) if paths else ""
        place = f"{dtype} {team} {kind}"
        if not (dtype and team and kind) or place not in EXPECTED:
            raise SassError(f"{code.name}: the loop at instruction {loop.head} is none of ours: "
                            f"dtype '{dtype}', {stride:#x} bytes between loads, kind '{kind}', "
                            f"{len(paths)} ways through it")
        if place in rows:
            raise SassError(f"{code.name}: two loops are {place}")
        local = sum(it.is_local for it in held)
        for path in paths:
            name = f"{dtype} {team} subnormals" if any(SUBNORMALS.match(it.opcode) for it in path) else place
            # Ways that differ in how the loop goes on: of each number the worst.
            row = way_row(path, ELEMENTS[dtype], local)
            rows[name] = worse_of(rows.get(name, row), row)
    if missing := EXPECTED - set(rows):
        raise SassError(f"{code.name}: no loop found for {', '.join(sorted(missing))}")
    return rows


def functions(code: Code, name: str, pattern: re.Pattern[str], dtypes: tuple[str, ...]) -> Iterator[tuple[str, int, list[Instruction]]]:
    """Out of line, one for each dtype: where it begins, and all of it."""
    entries = {DTYPES[int(match[1])]: entry for label, entry in code.labels.items() if (match := pattern.search(label))}
    if missing := set(dtypes) - set(entries):
        raise SassError(f"{code.name}: no function {name} of {', '.join(sorted(missing))}")
    for dtype, entry in entries.items():
        whole = [it for block in blocks_of(code, entry).values()
                 for it in code.instructions[block.begin:block.end]]
        yield dtype, entry, whole


def function_row(whole: list[Instruction]) -> dict:
    return {"function": len(whole), "local_accesses": sum(it.is_local for it in whole)}


def exact_rows(code: Code) -> dict[str, dict]:
    """Of the functions for what the loops refuse."""
    rows: dict[str, dict] = {}
    for dtype, entry, whole in functions(code, "read_exactly", EXACT, DTYPES):
        found = innermost(loops(code, entry), lambda it: it.name in ("LD", "LDG"))
        paths = found[0].paths(through="DFMA") if len(found) == 1 else []
        if not paths:
            raise SassError(f"{code.name}: no loop over elements in read_exactly of {dtype}")
        rows[f"{dtype} exact"] = {"instructions": len(paths[0]), "per_element": float(len(paths[0])),
                                   **function_row(whole)}
    return rows


TAKES_OUT = ("PRMT", "SHF")  # masks of whole lanes: two 16-bit ones, one of fp32


def takes_out(way: list[Instruction], words: int) -> bool:
    """What is not finite: a mask for each word, and more for what it is."""
    return sum(it.name in TAKES_OUT for it in way) >= words


def careful_rows(code: Code) -> dict[str, dict]:
    """Of the functions for groups that the loops refuse: a loop over a few vectors. Of the ways through it that call nothing:
    the longest with sums; the longest with what is not finite taken out first, without subnormal numbers; and the shortest of
    those that take it out and add nothing, where nothing is left."""
    rows: dict[str, dict] = {}
    for dtype, entry, whole in functions(code, "read_carefully", CAREFUL, ("f32", "f16", "bf16")):
        found = innermost(loops(code, entry), lambda it: it.is_wide_load)
        ways = found[0].paths() if len(found) == 1 else []
        loads = sum(it.is_wide_load for it in ways[0]) if ways else 0
        kinds: dict[str, list[Instruction]] = {}
        for way in ways:  # the shortest first
            adds, takes = any(it.name == "FFMA" for it in way), takes_out(way, 4 * loads)
            if takes and any(SUBNORMALS.match(it.opcode) for it in way):
                continue
            if takes and not adds:
                kinds.setdefault("broken", way)
            elif adds:
                kinds["nonfinite" if takes else "careful"] = way
        if missing := {"careful", "nonfinite", "broken"} - set(kinds):
            raise SassError(f"{code.name}: no loop with ways that are {', '.join(sorted(missing))} in read_carefully of {dtype}")
        function = {**function_row(whole), "prefetches": sum(it.is_prefetch for it in whole)}
        elements = ELEMENTS[dtype] / LOADS * loads
        for name in ("careful", "nonfinite", "broken"):
            count = len(kinds[name])
            rows[f"{dtype} {name}"] = {"instructions": count, "vectors": loads, "per_element": round(count / elements, 4), **function}
    return rows


def resource_rows(ptxas: str, arch: str) -> dict[str, dict]:
    """Of each kernel, by its name, from what `-Xptxas -v` prints."""
    rows: dict[str, dict] = {}
    for part in re.split(r"Compiling entry function ", ptxas)[1:]:
        name = re.match(r"'([^']+)' for '([^']+)'", part)
        used = re.search(r"Used (\d+) registers", part)
        if not name or name[2] != arch or not used:
            raise SassError(f"not understood of ptxas: {part[:200]}")
        shared = re.search(r"(\d+) bytes smem", part)
        registers, shared_bytes = int(used[1]), int(shared[1]) if shared else 0

        def most(pattern: str) -> int:  # of the kernel and its functions
            return max(int(number) for number in re.findall(pattern, part))

        spilled = most(r"(\d+) bytes spill stores") + most(r"(\d+) bytes spill loads")
        rows[name[1]] = resource_row(arch, registers, shared_bytes, most(r"(\d+) bytes stack frame"), spilled)
    return rows


def resource_row(arch: str, registers: int, shared_bytes: int, stack_bytes: int, spill_bytes: int) -> dict:
    return {"registers": registers, "shared_bytes": shared_bytes, "stack_bytes": stack_bytes, "spill_bytes": spill_bytes,
            "resident_blocks": resident_blocks(arch, registers, shared_bytes)}


RESERVED_SHARED = {"sm_90": 1024, "sm_100": 1024}
"""bytes for the driver, which `cuobjdump` counts and `ptxas` does not"""


def usage_rows(usage: str, arch: str) -> dict[str, dict]:
    """The same from what `cuobjdump -res-usage` prints. It says nothing of spills: they lie on the stack, whose size
    bounds them."""
    rows: dict[str, dict] = {}
    for name, registers, stack, shared in re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) ", usage):
        shared_bytes = max(0, int(shared) - RESERVED_SHARED.get(arch, 0))  # a kernel without any takes none for it
        rows[name] = resource_row(arch, int(registers), shared_bytes, int(stack), spill_bytes=int(stack))
    return rows


# Which way a number is worse. Others are only told of.
MORE_IS_WORSE = ("instructions", "registers", "spill_bytes", "stack_bytes", "local_accesses", "system_fences",
                 "device_fences", "barriers", "waits")
FEWER_IS_WORSE = ("loads_in_flight", "prefetches", "resident_blocks")


def waits(code: Code) -> dict:
    """Of a kernel and its functions: what its end has to wait for, wherever it stands."""
    fences = [it.opcode for it in code.instructions if it.name == "MEMBAR"]
    system = sum("SYS" in opcode.split(".") for opcode in fences)
    return {"system_fences": system, "device_fences": len(fences) - system,
            "barriers": sum(it.name == "BAR" for it in code.instructions)}


def worse_of(a: dict, b: dict) -> dict:
    """Of two rows of one name the worse number in each place."""
    return {field: (min if field in FEWER_IS_WORSE else max)(a.get(field, b.get(field)),
                                                             b.get(field, a.get(field)))
            for field in sorted({*a, *b})}


def kernel_rows(codes: list[Code], resources: dict[str, dict],
                arch: str) -> tuple[dict[str, dict], list[str]]:
    """All rows of one architecture, by name with the architecture; and notes on them."""
    return of_both(codes, resources, arch, KERNEL,
                   lambda code: {**loop_rows(code), **careful_rows(code), **exact_rows(code), **tail_rows(code),
                                 "kernel": {**resources[code.name], **waits(code)}})


def of_both(codes: list[Code], resources: dict[str, dict], arch: str, pattern: re.Pattern[str],
            rows_of: Callable[[Code], dict[str, dict]]) -> tuple[dict[str, dict], list[str]]:
    """A kernel is there twice, for few and for many tensors: a row tells of the worse one."""
    kernels = {code.name: code for code in codes if pattern.search(code.name)}
    if len(kernels) != 2 or set(kernels) != set(resources):
        raise SassError(f"{arch}: not two kernels: {', '.join({*kernels, *resources}) or 'none'}")
    rows: dict[str, dict] = {}
    differing: Counter[str] = Counter()
    for code in kernels.values():
        for row, numbers in rows_of(code).items():
            key = f"{arch} {row}"
            differing[key] += rows.get(key, numbers) != numbers
            rows[key] = worse_of(rows.get(key, numbers), numbers)
    return rows, [f"{key}: the kernels for few and for many tensors differ, the worse one counts"
                  for key, count in sorted(differing.items()) if count]
