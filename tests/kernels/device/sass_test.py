"""The kernels' machine code is what docs/internals/sass.json says; and scripts/sass.py sees when it is not.

The last is shown on machine code written by hand: a kernel with all the loops, and in each test one
thing wrong with it.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(ROOT / "scripts"))

import sass  # noqa: E402
import sass_paths  # noqa: E402
import sass_rows  # noqa: E402
import scale_rows  # noqa: E402
from sass_paths import SassError  # noqa: E402

NUMBERS = {"f32": 0, "f64": 1, "f16": 2, "bf16": 3}
ARITHMETIC = {"f32": ["FMNMX R50, R50, |R8|, PT"],
              "f64": ["DSETP.GT.AND P3, PT, |R8|, R50, PT", "DFMA R50, R8, R8, R50"],
              "f16": ["HMNMX2 R50, |R8|, R50, PT", "HADD2.F32 R51, -RZ, R8.H0_H0"],
              "bf16": ["VHMNMX R50, |R8|, |R9|, R50, PT"]}


def listing(*lines: str, name: str = "k") -> str:
    """As nvdisasm prints it; lines that end in a colon are labels."""
    text = [f'\t.section\t.text.{name},"ax",@progbits', f".text.{name}:"]
    for i, line in enumerate(lines):
        text.append(line if line.endswith(":") else f"        /*{16 * i:04x}*/  {line} ;")
    return "\n".join(text) + "\n"


def loads(stride: int, predicate: str = "") -> list[str]:
    return [f"{predicate}LDG.E.NA.128.CONSTANT R{8 + 4 * i}, desc[UR4][R2.64" +
            (f"+{stride * i:#x}]" if i else "]") for i in range(8)]


def hot_loop(number: int, dtype: str, team: str, way: str, first=(), then=()) -> list[str]:
    """`first` comes between the first load and the second, `then` after the arithmetic."""
    label = f".L_x_{number}"
    one, *others = loads(0x1000 if team == "block" else 0x200)
    lines = [f"{label}0:", one, *first, *others, *ARITHMETIC[dtype], *then]
    if way == "plain":
        lines += ["VOTE.ANY P3, P3", f"@P3 BRA `({label}6)"]
    if dtype == "f16" and way == "counting":
        lines += [f"@P1 BRA `({label}1)", "HSET2.LT.AND R52, R8, R5, PT", f"{label}1:"]
    lines += [f"@P2 BRA `({label}2)", "DADD R60, R60, R50", f"{label}3:"]
    if way == "counting":
        lines += [f"BRA.DIV UR9, `({label}4)", "VOTE.ANY P0, P0", f"{label}5:"]
    return lines + [
        f"@P0 BRA `({label}0)", f"BRA `({label}6)",
        f"{label}2:", f"CALL.REL.NOINC `($k$_ZN12{refusal(dtype)}ILNS0_5DTypeE{NUMBERS[dtype]}EEv)",
        f"BRA `({label}3)",
        # What threads that differ would do. Were it a way, it would be the longest.
        f"{label}4:", "WARPSYNC.COLLECTIVE R7, `(.L_x_0)", "VOTE.ANY P0, P0", f"BRA `({label}5)",
        f"{label}6:"]


def refusal(dtype: str) -> str:
    """The function for what a loop refuses."""
    return "read_exactly" if dtype == "f64" else "read_carefully"


TICKET = "ATOMG.E.ADD.STRONG.GPU PT, R9, desc[UR4][R2.64], R11"
TAIL = ["MEMBAR.ALL.GPU", TICKET, "ISETP.NE.AND P0, PT, R9, RZ, PT", "BAR.SYNC.DEFER_BLOCKING 0x0",
        "LDG.E.64 R12, desc[UR4][R2.64]", "LDG.E.64 R14, desc[UR4][R2.64+0x8]", "DADD R16, R12, R14",  # both at once
        "MEMBAR.ALL.GPU", TICKET, "@P0 EXIT", "ISETP.NE.AND P0, PT, R9, RZ, PT", "LDG.E R4, desc[UR4][R2.64]",
        "LDG.E R5, desc[UR4][R4.64]", "IADD3 R5, R5, R5, RZ",  # one for the other's sake
        "ATOMG.E.ADD.64.STRONG.GPU PT, RZ, desc[UR4][R2.64], R14", "MEMBAR.SC.SYS", "STG.E [R2.64], R5", "EXIT"]


def kernel(changed: str = "", first=(), then=(), pointers: int = 480, tail=None) -> str:
    """All loops; the one named so with instructions added."""
    lines: list[str] = []
    places = [(dtype, team, way) for dtype in NUMBERS for team in ("block", "warp")
              for way in ("plain", "counting") if (dtype, way) != ("f64", "plain")]
    for number, (dtype, team, way) in enumerate(places, 1):
        mine = {"first": first, "then": then} if changed == f"{dtype} {team} {way}" else {}
        lines += hot_loop(number, dtype, team, way, **mine)
    lines += [*loads(0x200, "@P0 "), *(TAIL if tail is None else tail)]  # what is left of a part, no loop
    for dtype, number in NUMBERS.items():
        label = f".L_x_90{number}"
        lines += [f"$k$_ZN12read_exactlyILNS0_5DTypeE{number}EEv:", f"{label}:", "LD.E R4, [R2]",
                  f"@P1 BRA `({label}1)", "DMUL R6, R6, R6", f"{label}1:", "DFMA R8, R6, R6, R8",
                  f"@P0 BRA `({label})", "RET.REL.NODEC R20 `(k)"]
        if refusal(dtype) == "read_carefully":
            label, mask = f".L_x_80{number}", "SHF.R.S32.HI R5, RZ, 0x1f, R5" if dtype == "f32" else "PRMT R5, R5, 0xbb99, RZ"
            lines += [f"$k$_ZN14read_carefullyILNS0_5DTypeE{number}EEv:", "CCTL.E.PF2 [R2]", f"{label}0:", *loads(0x200)[:2],
                      f"@!P1 BRA `({label}1)", *[mask] * 8,  # something is not finite
                      f"{label}1:", f"@!P2 BRA `({label}2)", "FFMA R80, R6, R6, R80",  # something is left
                      f"{label}2:", f"@P0 BRA `({label}0)", "RET.REL.NODEC R20 `(k)"]
    return listing(*lines, name=f"_ZN12read_tensorsILm{pointers}EEE")


SCALING = {"f32": ["FMUL R50, R8, R5"], "f64": ["DMUL R50, R8, R6"],
           "f16": ["HADD2.F32 R50, -RZ, R8.H0_H0", "FMUL R50, R50, R5", "F2FP.F16.F32.PACK_AB R8, R51, R50"],
           "bf16": ["FMUL R50, R8, R5", "F2FP.BF16.F32.PACK_AB R8, R51, R50"]}


def clip(changed: str = "", first=(), then=(), pointers: int = 480) -> str:
    """All loops of a clip; as kernel()."""
    lines: list[str] = []
    places = [(dtype, team) for dtype in SCALING for team in ("block", "warp")]
    for number, (dtype, team) in enumerate(places, 1):
        stride = 0x1000 if team == "block" else 0x200
        one, *others = loads(stride)
        is_changed = changed == f"{dtype} {team}"
        lines += [f".L_x_{number}:", one, *(first if is_changed else ()), *others, *SCALING[dtype],
                  *(then if is_changed else ()), *(f"STG.E.128 [R2.64+{stride * i:#x}], R8" for i in range(8)),
                  f"@P0 BRA `(.L_x_{number})"]
    return listing(*lines, "EXIT", name=f"_ZN13scale_tensorsILm{pointers}EEE")


def clip_rows(few: str = "", resources: str = "") -> dict:
    codes = sass_paths.parse((few or clip()) + clip(pointers=4064))
    used = sass_rows.resource_rows(resources or ptxas(72, name="13scale_tensors"), "sm_90")
    return scale_rows.scale_rows(codes, used, "sm_90")[0]


def ptxas(registers: int = 80, spilled: int = 0, name: str = "12read_tensors") -> str:
    return "".join(
        f"ptxas info : Compiling entry function '_ZN{name}ILm{pointers}EEE' for 'sm_90'\n"
        f"    {spilled} bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads\n"
        f"ptxas info : Used {registers} registers, used 1 barriers, 37864 bytes smem\n"
        for pointers in (480, 4064))


def rows_of(few: str, many: str = "", resources: str = "") -> dict:
    codes = sass_paths.parse(few + (many or kernel(pointers=4064)))
    pass_rows = sass_rows.kernel_rows(codes, sass_rows.resource_rows(resources or ptxas(), "sm_90"), "sm_90")[0]
    return {**pass_rows, **clip_rows()}


def only_loop(*lines: str) -> sass_paths.Loop:
    (code,) = sass_paths.parse(listing(*lines))
    (loop,) = sass_rows.hot_loops(code)
    return loop


def test_the_kernel_is_what_the_table_says():
    built = os.environ.get("GRADVANE_KERNEL_OBJECTS")
    objects = ["--objects", *built.split(":")] if built else []
    done = subprocess.run([sys.executable, "-B", ROOT / "scripts" / "sass.py", *objects],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_numbers_of_the_sources_are_the_scripts():
    def find(path: str, pattern: str) -> str:
        return re.search(pattern, (ROOT / path).read_text(encoding="utf-8"))[1]

    built = find("cmake/cuda.cmake", r"CMAKE_CUDA_ARCHITECTURES ([\d ]+)\)").split()
    assert [f"sm_{number}" for number in built] == list(sass.ARCHITECTURES)
    assert set(sass.ARCHITECTURES) == set(sass_rows.MULTIPROCESSOR)
    flags = find("kernels/CMakeLists.txt", r"COMPILE_LANGUAGE:CUDA>:([^>]+)>")
    assert set(flags.split(";")) <= set(sass.FLAGS)
    named = find("kernels/dtype.hpp", r"enum class DType[^{]*{([^}]+)}")
    assert [name.strip() for name in named.split(",")] == list(sass_rows.DTYPES)
    layout = "kernels/device/pass_layout.hpp"
    assert int(find(layout, r"kThreads = (\d+)")) == sass_rows.THREADS
    assert int(find("kernels/device/group.hpp", r"kGroup = (\d+)")) == sass_rows.LOADS


def test_a_good_kernel_meets_the_bars_and_its_own_table():
    rows = rows_of(kernel())
    assert {name.removeprefix("sm_90 ") for name in rows} == (
        sass_rows.EXPECTED | scale_rows.EXPECTED | {f"{dtype} exact" for dtype in NUMBERS} | {"kernel", "clip kernel"} |
        {f"{dtype} {way}" for dtype in NUMBERS if dtype != "f64" for way in ("careful", "nonfinite", "broken")} |
        {f"tail {stretch}" for stretch in ("start", "join", "end")})
    assert sass.missed_bars(rows) == []
    assert sass.judge("13.0", rows, {"nvcc": "13.0", "rows": rows}, "13.0") == ([], [])


def test_instructions_are_counted_along_each_way():
    rows = rows_of(kernel())
    # Eight loads, the arithmetic; refuse or not, the sum, the way back; the vote and its branch.
    assert rows["sm_90 bf16 block plain"]["instructions"] == 8 + 1 + 3 + 2
    assert rows["sm_90 f32 warp counting"]["instructions"] == 8 + 1 + 3 + 2
    assert rows["sm_90 f64 warp counting"]["per_element"] == round((8 + 2 + 3 + 2) / 16, 4)
    assert rows["sm_90 f16 block counting"]["instructions"] == 8 + 2 + 1 + 3 + 2
    assert rows["sm_90 f16 block subnormals"]["instructions"] == 8 + 2 + 2 + 3 + 2
    # The shortest way to the fused multiplication, and the whole function.
    assert rows["sm_90 bf16 exact"] == {"instructions": 4, "per_element": 4.0, "function": 6,
                                        "local_accesses": 0}


def test_a_spill_in_a_loop_is_a_fault():
    rows = rows_of(kernel("bf16 warp counting", then=["STL [R1+0x10], R50"]))
    assert sass.missed_bars(rows) == [
        "sm_90 bf16 warp counting: local_accesses 1, the bar is 0 at most"]
    worse, _ = sass.compare(rows_of(kernel()), rows)
    assert "sm_90 bf16 warp counting: local_accesses 0 -> 1" in worse


def test_a_spill_that_ptxas_tells_of_is_a_fault():
    missed = sass.missed_bars(rows_of(kernel(), resources=ptxas(spilled=8)))
    assert missed == ["sm_90 kernel: spill_bytes 8, the bar is 0 at most"]


@pytest.mark.parametrize(("way", "elements", "bar"), [
    ("f32 block plain", 32, 6.25), ("f32 warp counting", 32, 8.75), ("bf16 warp plain", 64, 5.2),
    ("bf16 block counting", 64, 6.8), ("f16 block plain", 64, 5.2), ("f16 warp counting", 64, 6.8)])
def test_too_many_instructions_are_a_fault(way, elements, bar):
    good = rows_of(kernel())
    room = int(bar * elements) - good[f"sm_90 {way}"]["instructions"]
    full = rows_of(kernel(way, then=["NOP"] * room))
    assert sass.missed_bars(full) == []
    worse, other = sass.compare(good, full)  # below the bar, and worse than it was all the same
    assert any(line.startswith(f"sm_90 {way}: instructions") for line in worse)
    assert other == []
    (missed,) = sass.missed_bars(rows_of(kernel(way, then=["NOP"] * (room + 1))))
    assert missed.startswith(f"sm_90 {way}: per_element")


@pytest.mark.parametrize("use", ["FADD R50, R50, R9", "DADD R50, R50, R10", "STS [R4], R8"])
def test_a_use_before_the_eighth_load_is_a_fault(use):
    rows = rows_of(kernel("f16 block plain", first=[use]))
    assert sass.missed_bars(rows) == [
        "sm_90 f16 block plain: loads_in_flight 1, the bar is 8 at least"]
    worse, _ = sass.compare(rows_of(kernel()), rows)
    assert "sm_90 f16 block plain: loads_in_flight 8 -> 1" in worse


def test_a_load_over_a_register_that_was_filled_is_a_use():
    reads = loads(0x200)
    reads[7] = reads[7].replace("R36", "R8")  # what was there must have been used, or moved
    assert sass_paths.loads_in_flight(only_loop(
        ".L_x_1:", *reads, "@P0 BRA `(.L_x_1)", "EXIT").paths()[0]) == 7


def test_registers_and_blocks_are_judged():
    rows = rows_of(kernel(), resources=ptxas(registers=96))
    assert sass.missed_bars(rows) == ["sm_90 kernel: registers 96, the bar is 80 at most"]
    worse, _ = sass.compare(rows_of(kernel()), rows)
    assert worse == ["sm_90 kernel: registers 80 -> 96", "sm_90 kernel: resident_blocks 3 -> 2"]


@pytest.mark.parametrize(("arch", "registers", "shared", "blocks"), [
    ("sm_90", 80, 37864, 3), ("sm_90", 81, 37864, 2), ("sm_90", 64, 37864, 4),
    ("sm_80", 32, 37864, 4), ("sm_90", 32, 37864, 6), ("sm_90", 32, 50000, 4),
    ("sm_100", 16, 0, 8), ("sm_90", 255, 0, 1)])
def test_resident_blocks(arch, registers, shared, blocks):
    assert sass_rows.resident_blocks(arch, registers, shared) == blocks


def test_the_worse_of_the_two_kernels_counts():
    many = kernel("f32 warp plain", then=["NOP"], pointers=4064)
    good, rows = rows_of(kernel()), rows_of(kernel(), many)
    assert rows["sm_90 f32 warp plain"]["instructions"] == (
        good["sm_90 f32 warp plain"]["instructions"] + 1)
    del good["sm_90 f32 warp plain"], rows["sm_90 f32 warp plain"]
    assert good == rows


def test_better_numbers_are_told_of_and_are_no_fault():
    table = {"nvcc": "13.0", "rows": rows_of(kernel("f32 warp plain", then=["NOP"]))}
    faults, notes = sass.judge("13.0", rows_of(kernel()), table, "13.0")
    assert faults == []
    assert notes[0].startswith("sm_90 f32 warp plain: instructions") and "--write" in notes[-1]


def test_a_new_way_through_a_loop_is_a_fault_if_it_is_longer():
    more = rows_of(kernel("bf16 block plain", then=["@P5 BRA `(.L_x_777)", "NOP", ".L_x_777:"]))
    worse, _ = sass.compare(rows_of(kernel()), more)
    assert any(line.startswith("sm_90 bf16 block plain: instructions") for line in worse)


def test_another_compiler_is_held_to_the_bars_alone():
    table = {"nvcc": "13.0", "rows": rows_of(kernel())}
    longer = rows_of(kernel("f32 warp plain", then=["NOP"]))
    faults, notes = sass.judge("13.1", longer, table, pinned="13.0")
    assert faults == [] and "only bars" in notes[0]
    faults, _ = sass.judge("13.1", longer, table, pinned="13.1")  # ours: the table is out of date
    assert len(faults) == 1
    faults, _ = sass.judge("13.1", rows_of(kernel(), resources=ptxas(96)), table, pinned="13.0")
    assert faults == ["sm_90 kernel: registers 96, the bar is 80 at most"]


def test_of_what_is_read_carefully_each_way_through_is_told_apart():
    rows = rows_of(kernel())
    # Two loads; a branch behind them, what is taken out, a branch, a sum, the way back.
    ways = {"careful": 2 + 1 + 1 + 1 + 1, "nonfinite": 2 + 1 + 8 + 1 + 1 + 1, "broken": 2 + 1 + 8 + 1 + 1}
    for way, instructions in ways.items():
        assert rows[f"sm_90 f32 {way}"]["instructions"] == instructions, way
        assert rows[f"sm_90 f32 {way}"]["per_element"] == instructions / 8


def test_vectors_that_nobody_asks_for_before_they_are_loaded_are_a_fault():
    text = kernel()
    assert "CCTL.E.PF2" in text
    assert any("prefetches 0" in fault for fault in sass.missed_bars(rows_of(text.replace("CCTL.E.PF2", "CCTL.E.IVALL"))))


@pytest.mark.parametrize(("fence", "field"), [("MEMBAR.SC.SYS", "system_fences 2"), ("MEMBAR.ALL.GPU", "device_fences 3")])
def test_one_fence_more_is_a_fault(fence, field):
    assert sass.missed_bars(rows_of(kernel())) == [], "the control"
    (fault,) = sass.missed_bars(rows_of(kernel(tail=[*TAIL[:-1], fence, "EXIT"])))
    assert field in fault


def test_what_the_end_waits_for_is_counted_along_the_longest_way():
    rows = rows_of(kernel())
    assert rows["sm_90 tail start"] == {"waits": 0, "barriers": 0, "device_fences": 0, "system_fences": 0}
    # The ticket; two loads that come together.
    assert rows["sm_90 tail join"] == {"waits": 2, "barriers": 1, "device_fences": 1, "system_fences": 0}
    # The ticket, a load, and one whose address it brings. No one waits for what an addition to memory returns.
    assert rows["sm_90 tail end"] == {"waits": 3, "barriers": 0, "device_fences": 0, "system_fences": 1}
    longer = kernel(tail=[*TAIL[:4], "@P2 BRA `(.L_x_999)", "LDG.E R30, desc[UR4][R2.64]", "MOV R31, R30", ".L_x_999:", *TAIL[4:]])
    assert rows_of(longer)["sm_90 tail join"]["waits"] == 3
    worse, _ = sass.compare(rows, rows_of(longer))
    assert worse == ["sm_90 tail join: waits 2 -> 3"]


def test_a_load_that_waits_for_another_one_is_a_fault_if_that_is_one_too_many():
    chain = ["LDG.E R30, desc[UR4][R2.64]", *["LDG.E R30, desc[UR4][R30.64]"] * 3]
    (fault,) = sass.missed_bars(rows_of(kernel(tail=[*TAIL[:4], *chain, *TAIL[4:]])))
    assert "tail join: waits 5" in fault


def test_a_kernel_with_another_number_of_tickets_is_refused():
    with pytest.raises(SassError, match="not two tickets, but 1"):
        rows_of(kernel(tail=TAIL[7:]))


def test_a_bar_without_a_row_is_a_fault():
    rows = {name: row for name, row in rows_of(kernel()).items() if name != "sm_90 kernel"}
    assert len(sass.missed_bars(rows)) == 4


@pytest.mark.parametrize(("was", "becomes", "said"), [
    ("VHMNMX R50", "FMNMX R50", "computes in f32, and calls a function for bf16"),
    ("FMNMX R50", "IMNMX R50", "computes in no known dtype"),
    ("+0x7000]", "+0x7010]", "is none of ours"),
    ("LDG.E.NA.128.CONSTANT R36", "LDG.E.NA.64.CONSTANT R36", "no loop found for"),
    ("DFMA R8,", "FFMA R8,", "no loop over elements in read_exactly of f32"),
    ("FFMA R80,", "DFMA R80,", "no loop with ways that are careful, nonfinite in read_carefully of f32"),
    ("EXIT", "BRX R4", "is not understood here")])
def test_code_of_another_shape_is_refused(was, becomes, said):
    text = kernel()
    assert was in text
    with pytest.raises(SassError, match=re.escape(said)):
        rows_of(text.replace(was, becomes))


def test_a_clip_is_counted_and_judged_as_well():
    rows = clip_rows()
    assert rows["sm_90 clip f16 warp"] == {"instructions": 20, "per_element": 20 / 64, "loads_in_flight": 8,
                                           "local_accesses": 0}
    for changed, what in (({"then": ["NOP"] * 200}, "per_element 3.4219, the bar is 3 at most"),
                          ({"first": ["FADD R50, R50, R9"]}, "loads_in_flight 1, the bar is 8 at least"),
                          ({"then": ["LDL R50, [R1]"]}, "local_accesses 1, the bar is 0 at most")):
        assert f"sm_90 clip bf16 block: {what}" in sass.missed_bars(clip_rows(clip("bf16 block", **changed)))
    full = clip_rows(resources=ptxas(96, 8, "13scale_tensors"))
    assert {"sm_90 clip kernel: registers 96, the bar is 80 at most",
            "sm_90 clip kernel: spill_bytes 8, the bar is 0 at most"} <= set(sass.missed_bars(full))


@pytest.mark.parametrize(("was", "becomes", "said"), [
    ("DMUL", "DADD", "is none of ours: 'clip  block'"),
    ("STG.E.128", "STG.E.64", "is none of ours: 'clip f32 block', 7 stores"),
    ("LDG.E.NA.128.CONSTANT R36", "LDG.E.NA.64.CONSTANT R36", "no loop found for clip f32 block")])
def test_a_clip_of_another_shape_is_refused(was, becomes, said):
    text = clip()
    assert was in text
    with pytest.raises(SassError, match=re.escape(said)):
        clip_rows(text.replace(was, becomes, 1))


def test_ways_on_that_only_sm_80_and_sm_100_have():
    # A "call" of a label never comes back: it is how ptxas for sm_80 leaves a loop.
    loop = only_loop(".L_x_1:", *loads(0x200), "@!P0 CALL.REL.NOINC `(.L_x_2)", "BRA `(.L_x_1)",
                     ".L_x_2:", "EXIT")
    assert [len(path) for path in loop.paths()] == [10]
    # The predicate may stand behind the opcode, and a loop may have two ends.
    loop = only_loop(".L_x_1:", *loads(0x200), "BRA.U UP0, `(.L_x_1)", "NOP",
                     "@P0 BRA P2, `(.L_x_1)", "EXIT")
    assert [len(path) for path in loop.paths()] == [9, 11]


def test_the_innermost_loop_is_the_hot_one():
    loop = only_loop(".L_x_1:", "NOP", ".L_x_2:", *loads(0x200), "@P0 BRA `(.L_x_2)",
                     "@P1 BRA `(.L_x_1)", "EXIT")
    assert [len(path) for path in loop.paths()] == [9]


def test_the_page_shows_the_table_and_nothing_else_of_it_changes():
    page = f"# Title\n\nBefore.\n{sass.BEGIN}\nold\n{sass.END}\nAfter.\n"
    assert sass.with_table(page, "new") == page.replace("old", "new")
    with pytest.raises(SassError):
        sass.with_table(page.replace(sass.END, ""), "new")
    rows = rows_of(kernel())
    assert json.loads(sass.to_json("13.0", rows)) == {"nvcc": "13.0", "rows": rows}
