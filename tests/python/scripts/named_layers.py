"""A training whose steps are known beforehand, and that waits where it is told to.

named_layers.py OUT.json [--poison one|all] [--late-rate X] [--wait STEP ...] [--fail]
"""

import argparse
import json
import math
import sys
import time

import torch
from torch import nn

POISON_AT = 60
STEPS = 70


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query_projection = nn.Linear(width, width)
        self.output_projection = nn.Linear(width, width)

    def forward(self, x):
        return self.output_projection(torch.tanh(self.query_projection(x)))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.self_attention = Attention(width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + self.self_attention(self.norm(x))


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embedding = nn.Linear(4, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def finite(values):
    return values[values.isfinite()]


def norm(tensors):
    kept = [finite(values.detach()) for values in tensors]
    return math.sqrt(sum(float(values.square().sum()) for values in kept)) if any(map(len, kept)) else None


def told_by_torch(model, loss, before):
    """Of one step. Norms are over finite elements, and absent where there is none."""
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return {
        "loss": repr(loss.item()),
        "norm": norm(gradients.values()),
        "bad": {name: int((~g.isfinite()).sum()) for name, g in gradients.items()},
        "norms": {name: norm([g]) for name, g in gradients.items()},
        "largest": {name: float(finite(g).abs().max()) if len(finite(g)) else None for name, g in gradients.items()},
        "zeros": {name: float((g == 0).double().mean()) for name, g in gradients.items()},
        "ratios": {name: float((p.detach() - before[name]).norm() / p.detach().norm())
                   for name, p in model.named_parameters()},
    }


def main():
    words = argparse.ArgumentParser()
    words.add_argument("out")
    words.add_argument("--poison", default="none")
    words.add_argument("--late-rate", type=float, default=0.02)
    words.add_argument("--wait", type=int, nargs="*", default=[])
    words.add_argument("--fail", action="store_true")
    options = words.parse_args()

    torch.manual_seed(11)
    torch.set_default_dtype(torch.float64)  # so that no other machine rounds a digit that is shown otherwise
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    poisoned = model.blocks[1].self_attention.query_projection.weight
    steps = []
    for step in range(1, STEPS + 1):
        if step == 40:
            optimizer.param_groups[0]["lr"] = options.late_rate
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True).sin()).square().mean()
        loss.backward()
        if step in (POISON_AT - 1, POISON_AT) and options.poison != "none":
            model.blocks[2].norm.weight.grad.fill_(1.0)  # something moves before it breaks
        if step == POISON_AT and options.poison == "one":
            poisoned.grad[1, 3] = math.nan
        if step == POISON_AT and options.poison == "all":
            poisoned.grad.fill_(math.inf)
        optimizer.step()
        steps.append(told_by_torch(model, loss, before))
        time.sleep(0.002)
        if step in options.wait:
            print("waiting after step", step, flush=True)
            sys.stdin.readline()
    with open(options.out, "w") as out:
        json.dump(steps, out)
    if options.fail:
        raise RuntimeError("no more data")


if __name__ == "__main__":
    main()
