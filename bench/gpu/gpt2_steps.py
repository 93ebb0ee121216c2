"""A step of GPT-2's whole training, with and without an agent, in one process and in turns.

  off                     no agent, and nothing reads the gradients
  lagged, immediate       an agent in that mode, which counts no host syncs
  ledger                  an agent with every option at its default: lagged, and it counts host syncs through CUPTI
  isfinite per parameter  any(not torch.isfinite(p.grad).all() for p in params), one host sync per parameter
  off, again              as off: how far the two are apart is what the machine adds

First the plain step is measured, and its work grows until it takes each of the lengths. Then blocks of steps take
turns, round by round; a ratio is of one round. An agent is attached for a block and detached after it. On CUDA a
step's time is between two events at the ends of steps, so waits for the host are in it. mean_seconds is from the
host's clock around a whole block. over_before_any_agent compares the plain arm with the plain steps at the start.
peak_bytes is torch's peak; device_used_bytes has memory from elsewhere too, such as the agent's. Host syncs are
counted by an agent's ledger, in steps that are not timed; where it cannot count, they are null.

Prints one JSON object a line: "block" rows as they are measured, "arm" rows at the end of a length. Times are
medians. The exit status is 1 if an agent did not see all steps, read nothing, or left something behind. On a CPU
(--device cpu --small) it only shows that it runs.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import machine
import torch
from gpt2_model import GPT2, PRECISIONS, SMALL, Training, calibrate
from process import Deadline

EXIT_NO_DEVICE = 77
FEWEST_ROUNDS = 2
STEPS = (3, 400)  # of a block, least and most
ATTACHING = 0.5  # seconds that it may take to attach, to detach, and to ask: a guess, until a round was measured


def without_options():
    """Options in the environment are stronger than those of an arm."""
    kept = ("GRADVANE_BUILD_DIR", "GRADVANE_SOURCE_DIR")
    for name in [name for name in os.environ if name.split("_")[0] == "GRADVANE" and name not in kept]:
        del os.environ[name]


def emit(row):
    print(json.dumps(row), flush=True)


def facts(device):
    return machine.facts() | ({} if device.type == "cuda" else {"device": "cpu"})


def plain_seconds(training, batch, micro_batches, steps):
    """The median of plain steps."""
    from gpt2_arms import WARM_UP, Block
    training.set_work(batch, micro_batches)
    try:
        for _ in range(WARM_UP):
            training.step()
        return statistics.median(Block(training, steps, None).seconds)
    except torch.OutOfMemoryError:
        training.optimizer.zero_grad()
        torch.cuda.empty_cache()
        raise


def calibrated(training, lengths, most):
    """For each length what a step does, before there ever was an agent in the process."""
    works, batch = [], 1
    for length in lengths:
        batch, micro_batches, _ = calibrate(lambda *work: plain_seconds(training, *work, 8), length, most, batch)
        seconds = plain_seconds(training, batch, micro_batches, 20)
        works.append({"target_seconds": length, "batch": batch, "micro_batches": micro_batches,
                      "seconds_before_any_agent": seconds})
        emit({"kind": "work", **works[-1]})
    return works


def quantile(values, share):
    return sorted(values)[round(share * (len(values) - 1))]


def spread(ratios):
    return {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}


def arm_row(arm, blocks, plain, label):
    """`blocks` and `plain` are of the same rounds."""
    steps = [seconds for block in blocks for seconds in block["step_seconds"]]

    def most(rows, name):
        return None if rows[0][name] is None else max(row[name] for row in rows)

    def ratio(name):
        return spread([a[name] / b[name] for a, b in zip(blocks, plain)])

    row = {"kind": "arm", "arm": arm, **label, "rounds": len(blocks), "steps": len(steps),
           "median_seconds": statistics.median(steps), "p10_seconds": quantile(steps, 0.1),
           "p90_seconds": quantile(steps, 0.9),
           "mean_seconds": statistics.median(block["mean_seconds"] for block in blocks),
           "host_seconds": statistics.median(block["host_seconds"] for block in blocks),
           "over_off": ratio("median_seconds"), "mean_over_off": ratio("mean_seconds"),
           "peak_bytes": most(blocks, "peak_bytes"), "off_peak_bytes": most(plain, "peak_bytes"),
           "device_used_bytes": most(blocks, "device_used_bytes"),
           "off_device_used_bytes": most(plain, "device_used_bytes")}
    if arm.startswith("off"):
        row["over_before_any_agent"] = row["median_seconds"] / label["seconds_before_any_agent"]
    if "problems" in blocks[0]:
        row |= {"incidents": sum(block["incidents"] for block in blocks),
                "sync_reasons": sorted({str(block["sync_reason"]) for block in blocks}),
                "problems": sorted({problem for block in blocks for problem in block["problems"]})}
    return row


def measure(training, work, rounds, steps, plain, label, deadline):
    """All arms at one length: rounds of blocks, as many as there is time for."""
    from gpt2_arms import ARMS, NAIVE, OPTIONS, host_syncs, run_block
    blocks = {arm: [] for arm in ARMS}
    longest = 0.0
    for number in range(rounds):
        if number >= FEWEST_ROUNDS and longest > deadline.left():
            break
        start = time.monotonic()
        # Now one way, now the other, so that none always comes after the same.
        for arm in ARMS if number % 2 else reversed(ARMS):
            blocks[arm].append(run_block(training, arm, steps, plain))
            emit({"kind": "block", "target_seconds": work["target_seconds"], "round": number, "arm": arm,
                  **blocks[arm][-1]})
        longest = max(longest, time.monotonic() - start)
    syncs = {}
    for arm in ("lagged", "immediate", NAIVE):
        syncs[arm], problems = host_syncs(training, arm, plain)
        blocks["lagged"][0]["problems"] += problems
    syncs["ledger"] = syncs["lagged"]
    rows = []
    for arm in ARMS:
        # What the training itself does is counted next to a lagged agent, which has none of its own.
        counted = syncs.get(arm) or (syncs["lagged"] and {"training": syncs["lagged"]["training"]})
        rows.append(arm_row(arm, blocks[arm], blocks["off"], label) | {
            "options": OPTIONS.get(arm), "host_syncs_per_step": counted})
        emit(rows[-1])
    return rows


def table(rows):
    lines = [f"{'length, ms':>10} {'arm':24} {'median':>9} {'p10':>9} {'p90':>9} {'/ off':>7} {'least':>7} {'most':>7} "
             f"{'steps':>6}  host syncs"]
    for row in rows:
        ms = [f"{1e3 * row[name]:9.3f}" for name in ("median_seconds", "p10_seconds", "p90_seconds")]
        ratios = [f"{row['over_off'][name]:7.4f}" for name in ("median", "least", "most")]
        lines.append(" ".join([f"{1e3 * row['target_seconds']:10.0f} {row['arm']:24}", *ms, *ratios,
                               f"{row['steps']:6}  {row['host_syncs_per_step'] or 'not counted'}"]))
    return "\n".join(lines)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny GPT, for a rehearsal")
    parser.add_argument("--precision", choices=PRECISIONS, default="parameters",
                        help="; ".join(f"{name}: {text}" for name, text in PRECISIONS.items()))
    parser.add_argument("--lengths", help="of a plain step, ms, with commas (10,50,150; --small: 5,15)")
    parser.add_argument("--sequence", type=int, help="tokens of a sequence (default: the model's context)")
    parser.add_argument("--most-batch", type=int, default=48, help="sequences at once; longer steps have micro-batches")
    parser.add_argument("--rounds", type=int, help="of blocks (7; --small: 2)")
    parser.add_argument("--block-seconds", type=float, help="of steps in a block (1.6; --small: 0.1)")
    parser.add_argument("--minutes", type=float, default=5.0, help="for everything; what does not fit is left out")
    options = parser.parse_args()
    lengths = options.lengths or ("5,15" if options.small else "10,50,150")
    options.lengths = [float(word) / 1e3 for word in lengths.split(",")]
    options.rounds = options.rounds or (2 if options.small else 7)
    options.block_seconds = options.block_seconds or (0.1 if options.small else 1.6)
    return options


def main():
    options = parsed()
    everything = Deadline(60 * options.minutes)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("gpt2_steps: torch sees no CUDA device", file=sys.stderr)
        return EXIT_NO_DEVICE
    without_options()
    if os.environ.get("GRADVANE_BUILD_DIR"):
        sys.path.insert(0, str(Path(os.environ["GRADVANE_BUILD_DIR"]) / "python"))
    from gpt2_arms import ARMS, WARM_UP, visible_state

    device = torch.device(options.device)
    about = facts(device)
    emit({"kind": "machine", **about})
    size = SMALL if options.small else GPT2
    training = Training(size, device, options.precision, min(options.sequence or size.context, size.context))
    works = calibrated(training, options.lengths, options.most_batch)
    plain = visible_state(training)
    rows = []
    for number, work in enumerate(works):
        seconds = work["seconds_before_any_agent"]
        steps = min(STEPS[1], max(STEPS[0], round(options.block_seconds / seconds)))
        a_round = len(ARMS) * ((steps + WARM_UP) * seconds + ATTACHING)
        if FEWEST_ROUNDS * a_round > everything.left():
            left_out = [1e3 * each["target_seconds"] for each in works[number:]]
            emit({"kind": "stopped", "minutes": options.minutes, "left_out_ms": left_out})
            print(f"gpt2_steps: {options.minutes:g} minutes are too few for steps of {left_out} ms", file=sys.stderr)
            break
        training.set_work(work["batch"], work["micro_batches"])
        if device.type == "cuda":
            torch.cuda.empty_cache()  # what another length had
        label = {**work, **training.facts(), **{name: about.get(name) for name in
                 ("device", "driver", "date", "commit", "torch", "cuda", "cores")}}
        share = Deadline(everything.left() / (len(works) - number))
        rows += measure(training, work, options.rounds, steps, plain, label, share)
    else:
        emit({"kind": "done"})
    print(table(rows), file=sys.stderr)
    problems = [f"{row['arm']}: {problem}" for row in rows for problem in row.get("problems", ())]
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
