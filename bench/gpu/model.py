#!/usr/bin/env python3
"""How long the pass should take on a GPU: from its instructions, its bytes, and what begins and ends it.

Written for the next run on a GPU to refute it. The constants come from the clocks of one trace on an H200
(bench/gpu/notes.md) and from docs/internals/sass.json; two are fitted, and say so. With --write it writes its tables into
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
MEASURED = ROOT / "bench" / "results" / "nvidia-h200" / "cuda_pass_2026-11-27.jsonl"
BEGIN = "<!-- model: begin, written by bench/gpu/model.py --write -->"
END = "<!-- model: end -->"

BLOCKS = 396
CHUNK = 32768
# In cycles of the H200's trace, at 1.93 GHz: until a block's first load, merging and handing in, joining the
# records of a tensor that is split, the last ticket with the norm.
FIRST_LOAD, HAND_IN, JOIN, LAST_TICKET = 5400, 2700, 6950, 6400
# Seconds: until the first block runs and after the last one; the fence to the host.
LAUNCH, FENCE = 2.4e-6, 2.2e-6
# Fitted to the 10,000 tensors: a record of 104 bytes into the host's memory, and a launch behind another.
RECORD, NEXT_LAUNCH = 5.5e-9, 4e-6


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


@dataclass(frozen=True)
class Case:
    """Tensors that are read together."""

    title: str
    dtype: str
    bytes: int
    tensors: int

    @property
    def elements(self) -> int:
        return self.bytes // (4 if self.dtype == "f32" else 2)

    @property
    def launches(self) -> int:
        return math.ceil(self.tensors / 4064) if self.tensors > 480 else 1


CASES = (
    Case("64 MB, bf16", "bf16", 1 << 26, 1), Case("256 MB, bf16", "bf16", 1 << 28, 1),
    Case("1 GB, bf16", "bf16", 1 << 30, 1), Case("64 MB, fp32", "f32", 1 << 26, 1),
    Case("256 MB, fp32", "f32", 1 << 28, 1), Case("1 GB, fp32", "f32", 1 << 30, 1),
    Case("GPT-2, bf16, 148 tensors", "bf16", 248_879_616, 148), Case("ResNet-50, bf16, 161 tensors", "bf16", 51_114_064, 161),
    Case("10,000 tensors of 272 bytes, bf16", "bf16", 2_720_800, 10_000),
)


def instructions_per_element(device: Device, dtype: str, way: str = "plain") -> float:
    rows = json.loads(SASS.read_text())["rows"]
    return rows[f"{device.architecture} {dtype} block {way}"]["per_element"]


def data_seconds(device: Device, case: Case) -> float:
    """Reading, where memory or issuing instructions is the limit. Blocks have whole chunks: all wait for the fullest."""
    chunks = max(math.ceil(case.bytes / CHUNK), 1)
    evenly = math.ceil(chunks / BLOCKS) * BLOCKS / chunks if chunks >= BLOCKS else 1.0
    memory = case.bytes * evenly / (device.bytes_per_second * device.reached)
    warp_instructions = case.elements * evenly * instructions_per_element(device, case.dtype) / 32
    return max(memory, warp_instructions / (4 * device.multiprocessors * device.clock))


def fixed_seconds(device: Device, case: Case) -> float:
    cycles = FIRST_LOAD + HAND_IN + JOIN + LAST_TICKET
    return LAUNCH + FENCE + cycles / device.clock + case.tensors * RECORD + (case.launches - 1) * NEXT_LAUNCH


def seconds(device: Device, case: Case) -> float:
    return data_seconds(device, case) + fixed_seconds(device, case)


def measured() -> dict[str, float]:
    """By the case's title: medians of the build that the model describes."""
    found = {}
    for line in MEASURED.read_text().splitlines():
        row = json.loads(line)
        if row["build"] != "one_round" or row["contender"] != "gradvane":
            continue
        for case in CASES:
            if (case.dtype, case.bytes, case.tensors) == (row["dtype"], row["bytes"], row["tensors"]):
                found[case.title] = row["device_seconds"]
    return found


def to_markdown() -> str:
    known = measured()
    lines = ["| microseconds | " + " | ".join(device.name for device in DEVICES) + " | measured on the H200 |",
             "|---" * (len(DEVICES) + 2) + "|"]
    for case in CASES:
        cells = [f"{seconds(device, case) * 1e6:.0f}" for device in DEVICES]
        lines.append(f"| {case.title} | " + " | ".join(cells) + f" | {known[case.title] * 1e6:.0f} |")
    return "\n".join(lines) + "\n"


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
