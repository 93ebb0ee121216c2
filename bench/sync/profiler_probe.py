"""PyTorch's profiler beside an attached agent, and NCCL's own runtime: does each see what it should?

  V2   GPU events of torch.profiler before, while and after an agent is attached, for each rule about it
  V10  the same with TEARDOWN_CUPTI=1, which ends CUPTI for the whole process after a trace
  V1b  host syncs and polls of NCCL with one rank; NCCL carries a CUDA runtime of its own

Every row is a process of its own, since the first use of the profiler decides for the rest of it. Prints a
line each; exits with 1 if a process did not come to its end, with 77 without a device. The package must be on
PYTHONPATH. With --quick only the rows that say most.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 120  # of one row
NO_DEVICE = 77
STEPS = 3  # of each part of a row
RULES = ("none", "gate", "yield", "ungated")  # none: no agent
ORDERS = ("agent_first", "profiler_first")


class Training:
    """Few steps of a small model, each with one read by the host."""

    def __init__(self):
        import torch
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.input = torch.randn(32, 64, device="cuda")

    def steps(self, count=STEPS):
        for _ in range(count):
            self.optimizer.zero_grad()
            loss = self.model(self.input).square().mean()
            loss.backward()
            self.optimizer.step()
            loss.item()

    def profiled(self):
        """Events of the GPU that the profiler saw in a few steps."""
        import torch
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
            self.steps()
            torch.cuda.synchronize()
        return sum(event.device_type == DeviceType.CUDA for event in trace.events())


class Watched:
    """An agent with a step log and a report, read when it is gone. No rule: no agent."""

    def __init__(self, training, rule):
        self.agent = None
        if rule == "none":
            return
        import gradvane
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self._log, self._report = folder / "steps.jsonl", folder / "syncs.json"
        # To yield and not be told of the profiler: nobody asks, nobody tells.
        self.agent = gradvane.attach(training.model, training.optimizer, port=-1, run_dir=folder, step_log=self._log,
                                     sync_report=self._report, sync_profiler="yield" if rule == "ungated" else rule)
        if rule == "ungated":
            self.agent._watcher.profiler_begins = lambda name: None

    def end(self):
        if self.agent is None:
            return [], {}
        self.agent.flush()
        self.agent.detach()
        with self._folder:
            return ([json.loads(line) for line in self._log.read_text().splitlines()],
                    json.loads(self._report.read_text()))


def profiler_row(rule, order):
    training = Training()
    training.steps()
    row = {"before": training.profiled() if order == "profiler_first" else None}
    watched = Watched(training, rule)
    training.steps()
    row["during"] = training.profiled()
    training.steps()
    steps, report = watched.end()
    row["after"] = training.profiled()
    counted = [step["step"] for step in steps if "syncs" in step]
    # A step's first moment is the end of the one before: the first of all has none.
    return row | {"steps": len(steps), "counted": len(counted),
                  "counted_while_profiling": sum(STEPS < number <= 2 * STEPS for number in counted),
                  "gaps": report.get("gaps"), "reason": report.get("reason"), "detail": report.get("detail"),
                  "profiler_syncs": sum(kind["calls"] for kind in
                                        report.get("totals", {}).get("profiler", {}).values())}


def nccl_row():
    """Each part of the work ends with a step, so that the step log tells them apart."""
    import torch
    import torch.distributed as dist
    training = Training()
    watched = Watched(training, "yield")
    parts = []

    def part(name, work):
        work()
        training.optimizer.step()
        parts.append(name)

    training.model(training.input).square().mean().backward()
    ones = torch.ones(1 << 20, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        part("nothing", lambda: None)
        part("nothing again", lambda: None)
        part("init_process_group", lambda: dist.init_process_group(
            "nccl", init_method=f"file://{folder}/store", rank=0, world_size=1, device_id=torch.device("cuda", 0)))
        part("first all_reduce", lambda: dist.all_reduce(ones))
        part("10 all_reduce", lambda: [dist.all_reduce(ones) for _ in range(10)])
        part("all_reduce and item", lambda: (dist.all_reduce(ones), ones[0].item()))
        part("barrier", dist.barrier)
        part("destroy_process_group", dist.destroy_process_group)
        part("nothing at the end", lambda: None)
    steps, report = watched.end()
    return {"parts": [{"part": name, "syncs": step.get("syncs", {}).get("training", {}).get("kinds"),
                       "polls": step.get("syncs", {}).get("polls")} for name, step in zip(parts, steps)],
            "reason": report.get("reason"),
            "sites": [[site["location"], site["thread"], site["kind"], site["calls"]]
                      for site in report.get("sites", [])]}


def child(words):
    print(json.dumps(nccl_row() if words == ["nccl"] else profiler_row(*words)))


def in_child(words, **environment):
    """The row of a process, or a sentence about its end."""
    env = {name: value for name, value in os.environ.items() if name not in ("KINETO_USE_DAEMON", "TEARDOWN_CUPTI")}
    try:
        done = subprocess.run([sys.executable, "-B", __file__, "--child", *words], env=env | environment,
                              capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"did not end in {SECONDS} s"
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    return f"ended with {done.returncode}: {' | '.join(done.stderr.strip().splitlines()[-3:])}"


def print_profiler_row(question, rule, order, row):
    def cell(name):
        value = row.get(name)
        return "-" if value is None else str(value)
    if isinstance(row, str):
        print(f"{question} {rule:8} {order:14} {row}", flush=True)
        return False
    told = f"{cell('counted_while_profiling'):>3} of {STEPS}" if row["steps"] else "  no agent"
    print(f"{question} {rule:8} {order:14} GPU events before {cell('before'):>4}, during {cell('during'):>4}, after "
          f"{cell('after'):>4}; steps counted {cell('counted'):>2} of {row['steps']}, while profiling {told}; gaps "
          f"{cell('gaps')}, {cell('reason')} {row.get('detail') or ''}", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return 0
    import torch
    if not torch.cuda.is_available():
        print("profiler_probe: torch sees no CUDA device", file=sys.stderr)
        return NO_DEVICE
    rows = [("V2", rule, order, {}) for rule in RULES for order in ORDERS
            if not options.quick or order == "agent_first"]
    rows += [("V10", rule, order, {"TEARDOWN_CUPTI": "1"}) for rule in ("none", "gate") for order in ORDERS
             if not options.quick or (rule, order) == ("gate", "agent_first")]
    whole = True
    for question, rule, order, environment in rows:
        gate = {"KINETO_USE_DAEMON": "1"} if rule == "gate" else {}
        whole &= print_profiler_row(question, rule, order, in_child([rule, order], **environment, **gate))
    nccl = in_child(["nccl"])
    if isinstance(nccl, str):
        print(f"V1b {nccl}")
        return 1
    for part in nccl["parts"]:
        print(f"V1b {part['part']}: syncs {part['syncs']}, polls {part['polls']}")
    for location, thread, kind, calls in nccl["sites"]:
        print(f"V1b {calls} {kind} at {location} on {thread}")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
