#!/usr/bin/env python3
"""How long the pass should take on a GPU: from its instructions, its bytes, and what begins and ends it.

Written for the next run on a GPU to refute it. The constants come from the clocks of one trace on an H200
(bench/gpu/notes.md) and from docs/internals/sass.json; those that are fitted or guessed say so. With --write it writes its tables into
docs/internals/kernel.md.

    python3 bench/gpu/model.py [--write]
"""

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "kernel.md"
SASS = ROOT / "docs" / "internals" / "sass.json"
RESULTS = ROOT / "bench" / "results" / "nvidia-h200"
# The later one counts, where it has a case.
MEASURED = (("cuda_pass_2026-11-29.jsonl", "177da779f3dd"), ("cuda_pass_variants_2026-11-29.jsonl", "62de1ee5dfa4"))
BEGIN = "<!-- model: begin, written by bench/gpu/model.py --write -->"
END = "<!-- model: end -->"

BLOCKS = 396
CHUNK = 32768
VECTORS = 8  # of a thread, in flight together or asked for together
WARP_VECTOR = 512  # bytes that a warp loads at once
# In cycles of the H200's trace, at 1.93 GHz: until a block's first load, merging and handing in, joining the
# records of a tensor that is split in two rounds of loads, the last ticket with the norm.
FIRST_LOAD, HAND_IN, JOIN, LAST_TICKET = 5400, 2700, 6950, 6400
# What the code that was traced waited for on the way (docs/internals/sass.json has what today's does, "tail").
TRACED = {"start": {"waits": 4, "system_fences": 0}, "join": {"waits": 4, "system_fences": 0}, "end": {"waits": 7, "system_fences": 1}}
# Cycles of a fence to the host's memory: a hand-in with two of them took 5,000 instead of 1,500.
SYSTEM_FENCE = 1750
RECORDS_OF_A_ROUND = 208  # that are loaded together where they are joined
# Seconds: until the first block runs and after the last one; the fence to the host.
LAUNCH, FENCE = 2.4e-6, 2.2e-6
# Fitted to the 10,000 tensors: a record of 104 bytes into the host's memory, as they lay side by side, and a launch behind
# another.
RECORD, NEXT_LAUNCH = 5.5e-9, 4e-6
# Fitted to 1 GB that 132 blocks read in 296 us, one on a multiprocessor: a load from memory under load.
LATENCY = 0.96e-6
# A guess: a load that finds its bytes in the L2 cache.
CACHED = 0.2e-6
# Fitted to 1 GB that was clipped in 592 us on the H200: of the bandwidth, where bytes are read and written again in place. A
# copy to other memory reaches 0.89.
IN_PLACE = 0.76


@dataclass(frozen=True)
class Device:
    """Of its data sheet, but for `reached`: what a plain read reaches of the bandwidth."""

    name: str
    architecture: str
    multiprocessors: int
    clock: float
    bytes_per_second: float
    reached: float = 0.96  # measured on the H200: 1 GB in 233 us


DEVICES = (
    Device("A100 80 GB", "sm_80", 108, 1.41e9, 2.04e12, 0.93),
    Device("H100 SXM", "sm_90", 132, 1.83e9, 3.35e12),
    Device("H200", "sm_90", 132, 1.93e9, 4.80e12),
    Device("B200", "sm_100", 148, 1.85e9, 8.00e12),
)
H200 = DEVICES[2]


@dataclass(frozen=True)
class Case:
    """Tensors that are read together, all of whose groups go one way through the machine code (scripts/machine_code)."""

    title: str
    dtype: str
    bytes: int
    tensors: int = 1
    way: str = "plain"
    most_blocks: int = BLOCKS
    chunks_of_a_block: int = 1  # at least

    @property
    def chunks(self) -> int:
        return max(math.ceil(self.bytes / CHUNK), 1)

    @property
    def blocks(self) -> int:
        return min(self.most_blocks, math.ceil(self.chunks / self.chunks_of_a_block))

    @property
    def launches(self) -> int:
        return math.ceil(self.tensors / 4064) if self.tensors > 480 else 1


MEGABYTE = 1 << 20
CASES = (
    Case("64 MB, bf16", "bf16", 1 << 26), Case("256 MB, bf16", "bf16", 1 << 28),
    Case("1 GB, bf16", "bf16", 1 << 30), Case("64 MB, fp32", "f32", 1 << 26),
    Case("256 MB, fp32", "f32", 1 << 28), Case("1 GB, fp32", "f32", 1 << 30),
    Case("GPT-2, bf16, 148 tensors", "bf16", 248_879_616, 148), Case("ResNet-50, bf16, 161 tensors", "bf16", 51_114_064, 161),
    Case("10,000 tensors of 272 bytes, bf16", "bf16", 2_720_800, 10_000),
)
WAYS = {"plain": "normal numbers", "counting": "half of them zero", "careful": "half of them subnormal",
        "nonfinite": "half of them NaN", "broken": "all NaN"}
SICK = {"careful": "half_subnormal", "nonfinite": "half_nan", "broken": "all_nan"}
"""the ways out of line, and data that goes them"""
SMALL = (4, 8, 16, 24, 32)  # megabytes


def rows(device: Device) -> dict[str, dict]:
    every = json.loads(SASS.read_text())["rows"]
    of_it = device.architecture + " "
    return {name.removeprefix(of_it): row for name, row in every.items() if name.startswith(of_it)}


def group_seconds(device: Device, case: Case, warps: int) -> float:
    """Until a warp is done with its next group, where `warps` share a scheduler. Either they issue instructions all
    the time, or each waits for its loads."""
    way = "plain" if case.way in SICK else case.way
    issuing = rows(device)[f"{case.dtype} block {way}"]["instructions"] / device.clock
    return max(warps * issuing, LATENCY + issuing)


def careful_seconds(device: Device, case: Case) -> float:
    """Issuing the instructions of groups that are read carefully. It comes on top of reading: warps that share a
    multiprocessor wait for memory together and then compute together, as an H200 showed (bench/gpu/notes.md)."""
    if case.way not in SICK:
        return 0
    row = rows(device)[f"{case.dtype} {case.way}"]
    each = case.bytes / WARP_VECTOR / (4 * device.multiprocessors)  # vectors that a scheduler has
    return each * row["instructions"] / row["vectors"] / device.clock


def data_seconds(device: Device, case: Case) -> float:
    """Reading, where memory is the limit, or what multiprocessors have in flight, or issuing instructions. Blocks have
    whole chunks: all wait for the fullest."""
    resident = min(rows(device)["kernel"]["resident_blocks"], math.ceil(case.blocks / device.multiprocessors))
    warps = resident * 8
    in_flight = warps * VECTORS * WARP_VECTOR * min(device.multiprocessors, case.blocks)
    by_multiprocessors = in_flight / group_seconds(device, case, warps // 4)
    evenly = math.ceil(case.chunks / case.blocks) * case.blocks / case.chunks
    by_memory = device.bytes_per_second * device.reached
    return careful_seconds(device, case) + max(case.bytes * evenly / min(by_memory, by_multiprocessors),
                                               math.ceil(case.chunks / case.blocks) * group_seconds(device, case, 1))


def more_than_traced(device: Device) -> float:
    """Cycles that today's code waits longer than the traced one, by counts of its machine code. What it waits for lies in the
    L2 cache: other blocks have just written it."""
    counted = rows(device)
    return sum((counted[f"tail {stretch}"]["waits"] - then["waits"]) * CACHED * H200.clock +
               (counted[f"tail {stretch}"]["system_fences"] - then["system_fences"]) * SYSTEM_FENCE
               for stretch, then in TRACED.items())


def fixed_seconds(device: Device, case: Case) -> float:
    rounds = math.ceil(case.blocks / RECORDS_OF_A_ROUND)
    cycles = FIRST_LOAD + HAND_IN + JOIN / 2 * rounds + LAST_TICKET + more_than_traced(device)
    return LAUNCH + FENCE + cycles / device.clock + case.tensors * RECORD + (case.launches - 1) * NEXT_LAUNCH


def seconds(device: Device, case: Case) -> float:
    return data_seconds(device, case) + fixed_seconds(device, case)


def clip_seconds(device: Device, case: Case, scales: bool) -> float:
    """Of the launch that multiplies all gradients. Where the coefficient is 1, each block reads the norm and is done."""
    begins = LAUNCH + FIRST_LOAD / device.clock
    if not scales:
        return begins
    row = rows(device)[f"clip {case.dtype} block"]
    warps = rows(device)["clip kernel"]["resident_blocks"] * 8
    issuing = warps // 4 * row["instructions"] / device.clock
    in_flight = warps * VECTORS * WARP_VECTOR * device.multiprocessors
    by_multiprocessors = in_flight / max(issuing, 2 * LATENCY)  # a load, and a store behind it
    by_memory = device.bytes_per_second * IN_PLACE / 2  # each byte is read and written
    return begins + case.bytes / min(by_memory, by_multiprocessors)


def sick(dtype: str, way: str) -> Case:
    return Case(WAYS[way], dtype, 1 << 28, way=way)


def small(megabytes: int, chunks_of_a_block: int) -> Case:
    return Case(f"{megabytes} MB", "bf16", megabytes * MEGABYTE, chunks_of_a_block=chunks_of_a_block)


def measured() -> dict[str, float]:
    """By the case's title: medians of the newest build that has the case."""
    cases = {(case.dtype, case.bytes, case.tensors, "uniform"): case.title for case in CASES}
    cases |= {(dtype, 1 << 28, 1, data): f"{dtype} {way}" for way, data in SICK.items() for dtype in ("bf16", "f32")}
    found = {}
    for name, build in MEASURED:
        for line in (RESULTS / name).read_text().splitlines():
            row = json.loads(line)
            case = cases.get((row["dtype"], row["bytes"], row["tensors"], row["data"]))
            if case and (row["build"], row["contender"]) == (build, "gradvane"):
                found[case] = row["device_seconds"]
    return found


def table(titles: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (titles, ["---"] * len(titles), *lines)) + "\n"


def micro(device: Device, case: Case) -> str:
    return f"{seconds(device, case) * 1e6:.0f}"


def to_markdown() -> str:
    known = measured()
    devices = table(["microseconds", *(device.name for device in DEVICES), "measured on the H200"],
                    [[case.title, *(micro(device, case) for device in DEVICES), f"{known[case.title] * 1e6:.0f}"] for case in CASES])
    data = table(["256 MB on the H200, microseconds", *(cell for dtype in ("bf16", "fp32") for cell in (
                     dtype, "over normal numbers", "measured"))],
                 [[WAYS[way], *(cell for dtype in ("bf16", "f32") for cell in (
                     micro(H200, sick(dtype, way)),
                     f"{seconds(H200, sick(dtype, way)) / seconds(H200, sick(dtype, 'plain')):.2f}",
                     f"{known[f'{dtype} {way}'] * 1e6:.0f}" if way in SICK else ""))] for way in WAYS])
    blocks = table(["a small model in bf16 on the H200, microseconds", *(f"{size} MB" for size in SMALL)],
                   [[f"at least {chunks} chunk{'s' * (chunks > 1)} a block",
                     *(f"{seconds(H200, small(size, chunks)) * 1e6:.1f}" for size in SMALL)] for chunks in (1, 2, 4)])
    whole = Case("", "bf16", 1 << 28)
    others = table(["256 MB in bf16, microseconds", *(device.name for device in DEVICES)],
                   [["a clip that scales", *(f"{clip_seconds(device, whole, True) * 1e6:.0f}" for device in DEVICES)],
                    ["a clip whose coefficient is 1", *(f"{clip_seconds(device, whole, False) * 1e6:.1f}" for device in DEVICES)],
                    ["the flag for a scaler: a launch of one element", *(f"{LAUNCH * 1e6:.1f}" for _ in DEVICES)]])
    return f"{devices}\n{data}\n{blocks}\n{others}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table into docs/internals/kernel.md")
    if not parser.parse_args().write:
        print(to_markdown(), end="")
        return
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{to_markdown()}{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
