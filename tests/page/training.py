"""A training to be looked at: run under `gradvane run`, it goes on until FOLDER/stop is there.

    training.py FOLDER [PARAMETERS]

One gradient of the step after FOLDER/poison appears is NaN; with FOLDER/poison holding "on", until it is gone again. The
loop leaves such a step out, unless FOLDER/poison holds "trusted".
"""

import sys
import time
from pathlib import Path

import torch
from torch import nn

STEP_SECONDS = 0.02


def model_of(parameters: int) -> nn.Module:
    if parameters:
        return nn.ModuleList([nn.Linear(4, 4, bias=False) for _ in range(parameters)])
    layers = {f"layer{i}": nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)) for i in range(4)}
    return nn.ModuleDict({**layers, "head": nn.Linear(32, 8)})


def loss_of(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    if isinstance(model, nn.ModuleList):
        return sum(layer.weight.square().sum() for layer in model)
    for layer in model.values():
        inputs = layer(inputs)
    return inputs.square().mean()


def main(folder: Path, parameters: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = model_of(parameters)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    poison = folder / "poison"
    is_on = False

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        return gradient.index_fill(0, torch.tensor([0]), float("nan")) if is_on else gradient

    if not parameters:
        model["layer2"][0].weight.register_hook(spoil)
    was_there = False
    while not (folder / "stop").exists():
        due = time.monotonic() + STEP_SECONDS
        is_there = poison.exists()
        how = poison.read_text() if is_there else ""
        is_on = is_there and (not was_there or how == "on")
        was_there = is_there
        optimizer.zero_grad()
        loss_of(model, torch.randn(16, 32)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not is_on or how == "trusted":
            optimizer.step()
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
