"""Stage kernel: cuda_pass_bench, then torch's rivals on the same tensors, and how they compare."""

import json
import sys

import machine
from process import ROOT, StageError, python_path, run

RIVALS = ("foreach_norm", "clip_grad", "amp_check", "stacked_check", "stacked_norms", "cat_statistics", "eager",
          "package", "gradvane_clip")
EXIT_NO_DEVICE = 77


def rows_of(done, what, failures):
    """The JSON objects that a benchmark printed, one a line; one that was stopped may end in half a one."""
    rows = []
    for line in done.out.splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            if not done.timed_out:
                failures.append(f"{what} printed what is not JSON: {line[:100]}")
    if done.timed_out:
        failures.append(f"{what} did not come to its end in {done.seconds:.0f} s")
    return rows


def key(row):
    return tuple(row[name] for name in ("shape", "dtype", "data", "offset", "numel"))


def by_case(rows):
    """{case: {contender: row}}, in the order of the rows."""
    cases = {}
    for row in rows:
        if "device_seconds" in row:
            name = row["contender"]
            # What the package takes as a whole stands beside torch's rivals; the pass alone is cuda_pass_bench's.
            whole = row.get("bench") == "torch_rivals" and name == "gradvane"
            cases.setdefault(key(row), {})["package" if whole else name] = row
    return cases


def ratios(cases):
    """Our device time over each contender's, and our host time over theirs."""
    result = []
    for case, rows in cases.items():
        ours = rows.get("gradvane")
        if ours is None:
            continue
        result.append(dict(zip(("shape", "dtype", "data", "offset", "numel"), case)) | {
            "bytes": ours["bytes"],
            "device": {name: ours["device_seconds"] / row["device_seconds"] for name, row in rows.items()
                       if name != "gradvane"},
            "host": {name: ours["host_seconds"] / row["host_seconds"] for name, row in rows.items()
                     if name != "gradvane"}})
    return result


def print_tables(cases, compared):
    names = ("roofline", "naive", *RIVALS)
    print("GB/s of the pass, and its device time over that of each:")
    print(f"{'shape':11} {'dtype':5} {'MB':>7} {'us':>9} {'GB/s':>6} {'host us':>8}",
          *(f"{name:>14}" for name in names))
    for row in compared:
        if (row["data"], row["offset"]) != ("uniform", 0):
            continue
        ours = cases[key(row)]["gradvane"]
        values = (f"{row['device'][name]:14.4f}" if name in row["device"] else f"{'-':>14}" for name in names)
        print(f"{row['shape']:11} {row['dtype']:5} {row['bytes'] / 2**20:7.0f} "
              f"{1e6 * ours['device_seconds']:9.1f} {ours['gigabytes_per_second']:6.0f} "
              f"{1e6 * ours['host_seconds']:8.1f}", *values)
    print("\nDevice time over the roofline's, by data and offset: least, most, and where (from 256 MB on)")
    kinds = {}
    for row in compared:
        if row["bytes"] >= 200 << 20 and "roofline" in row["device"]:
            kinds.setdefault((row["data"], row["offset"], row["dtype"]), []).append(row)
    for (data, offset, dtype), rows in sorted(kinds.items()):
        rows.sort(key=lambda row: row["device"]["roofline"])
        worst = rows[-1]
        print(f"{data:15} offset {offset} {dtype:5} {rows[0]['device']['roofline']:7.3f} "
              f"{worst['device']['roofline']:7.3f}  {worst['shape']} {worst['bytes'] >> 20} MB")


def run_stage(context):
    context.build.build(["cuda_pass_bench", "gradvane_package"], context.deadline)
    bench = context.build.program("cuda_pass_bench")
    choice = ["--quick"] if context.quick else []
    # Room for torch: it has fewer cases, and eager has none that are quick.
    done = run([bench, *choice], context.log, context.deadline, limit=0.7 * context.deadline.left())
    if done.code == EXIT_NO_DEVICE:
        raise StageError(done.err.strip())
    failures = []
    ours = rows_of(done, "cuda_pass_bench", failures)
    failures += [f"cuda_pass_bench: {row['error']} ({key(row)})" for row in ours if "error" in row]
    if done.code != 0 and not failures:
        failures.append(f"cuda_pass_bench failed with {done.code}: {done.err[-500:]}")

    listed = run([bench, "--list", "--data", "uniform", "--offset", "0"] if not context.quick else
                 [bench, "--quick", "--list"], context.log, context.deadline)
    cases_file = ROOT / "build" / "gpu" / "cases.jsonl"
    cases_file.parent.mkdir(parents=True, exist_ok=True)
    cases_file.write_text(listed.out)
    done = run([sys.executable, "-B", ROOT / "bench" / "gpu" / "torch_rivals.py", "--cases", cases_file,
                "--seconds", "0.2" if context.quick else "0.6"], context.log, context.deadline,
               environment={"PYTHONPATH": python_path(context.build.package)})
    theirs = rows_of(done, "torch_rivals", failures)
    if done.code:
        failures.append(f"torch_rivals failed with {done.code}: {done.err[-500:]}")

    cases = by_case(ours + theirs)
    compared = ratios(cases)
    if not compared:
        failures.append("no case was measured")
    print_tables(cases, compared)
    return {"rows": ours, "torch_rows": theirs, "gradvane_over_each": compared,
            "clocks_between": machine.clocks(), "failure": "; ".join(failures[:10]) or None}
