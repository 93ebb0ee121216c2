"""What it costs to watch steps for the first module that goes bad, against an agent that does not, in one run.

Arms take turns, some steps of each in a round, and a ratio is of one round. Rivals: torch's
anomaly detection, and hooks that look at each output at once. One JSON object a line.
"""

import argparse
import contextlib
import json
import statistics
import time

import small_training
import torch
from torch import nn

import gradvane


def transformer(width, context):
    small_training.WIDTH, small_training.CONTEXT = width, context
    model = small_training.Model()
    words = torch.randint(0, small_training.WORDS, (small_training.BATCH, context))

    def loss():
        return nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())

    return model, loss


def thousand_layers():
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(1000)])
    inputs = torch.randn(8, 64)
    return model, lambda: model(inputs).square().mean()


CASES = {
    "transformer, width 128": lambda: transformer(128, 64),
    "transformer, width 512": lambda: transformer(512, 64),
    "1000 linear layers, 8 x 64": thousand_layers,
}


@contextlib.contextmanager
def looking_at_each_output(model):
    def look(module, args, output):
        for tensor in output if isinstance(output, tuple) else (output,):
            if tensor is not None and not tensor.isfinite().all():
                print(module)

    handles = [module.register_forward_hook(look) for module in model.modules()]
    yield
    for handle in handles:
        handle.remove()


def measure(case, rounds, steps):
    torch.manual_seed(0)
    model, loss = CASES[case]()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)

    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    def watching(trace, asks=False):
        agent = gradvane.attach(model, optimizer, port=-1, run="tracing", trace_nonfinite=trace)
        step()  # makes the plan
        for _ in range(steps):
            if asks:
                agent.trace_nonfinite()
            yield step
        agent.detach()

    def torchs_own(context):
        agent = gradvane.attach(model, optimizer, port=-1, run="tracing", trace_nonfinite="off")
        step()
        with context():
            for _ in range(steps):
                yield step
        agent.detach()

    arms = {
        "off": lambda: watching("off"),
        "next_step, nothing happens": lambda: watching("next_step"),
        "always": lambda: watching("always"),
        "asked for, each step": lambda: watching("off", asks=True),
        "torch: detect_anomaly": lambda: torchs_own(lambda: torch.autograd.detect_anomaly(check_nan=True)),
        "torch: isfinite().all() of each output": lambda: torchs_own(lambda: looking_at_each_output(model)),
    }
    taken = {name: [] for name in arms}
    ratios = {name: [] for name in arms}
    for number in range(rounds):
        order = list(arms) if number % 2 else list(reversed(arms))
        medians = {}
        for name in order:
            seconds = []
            for work in arms[name]():
                start = time.perf_counter()
                work()
                seconds.append(time.perf_counter() - start)
            taken[name] += seconds
            medians[name] = statistics.median(seconds)
        for name in arms:
            ratios[name].append(medians[name] / medians["off"])
    return [
        {"case": case, "arm": name, "threads": torch.get_num_threads(), "rounds": rounds, "steps_per_round": steps,
         "seconds": statistics.median(taken[name]), "over_off": statistics.median(ratios[name]),
         "ratio_of_each_round": ratios[name]}
        for name in arms
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in CASES:
        for row in measure(case, options.rounds, options.steps):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
