"""A small language model, one character at a time, that is broken on the way. A program of its own, run by the drill.

    python policy_training.py POLICY FAULT OUT

FAULT: none; gradient (a NaN in a gradient at step 50 and every 50 steps after it, which stays there); state (a NaN in
AdamW's running mean after step 130: no gradient shows it). OUT gets a JSON object with the held-out loss at the end.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Literal, cast

import torch

import gradvane

ROOT = Path(__file__).resolve().parents[2]
STEPS, EVERY, POISONED = 300, 50, 130
CONTEXT = 8
Policy = Literal["watch", "skip", "rollback"]


def text() -> torch.Tensor:
    """Of files that do not change: where the training ends is compared to the percent."""
    whole = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "LICENSE", *sorted((ROOT / "LICENSES").glob("*.txt"))))
    return torch.tensor([min(ord(letter), 127) for letter in whole])


def examples(letters: torch.Tensor, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    starts = torch.randint(len(letters) - CONTEXT, (count,), generator=generator)
    return torch.stack([letters[at:at + CONTEXT] for at in starts]), letters[starts + CONTEXT]


def main() -> None:
    policy, fault, out = cast("Policy", sys.argv[1]), *sys.argv[2:4]
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(7)
    torch.set_num_threads(1)
    letters = text()
    border = len(letters) * 9 // 10
    model = torch.nn.Sequential(torch.nn.Embedding(128, 16), torch.nn.Flatten(), torch.nn.Linear(16 * CONTEXT, 96),
                                torch.nn.Tanh(), torch.nn.Dropout(0.05), torch.nn.Linear(96, 128))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    rollbacks: list[gradvane.Rollback] = []
    agent = gradvane.attach(model, optimizer, run=f"drill-{policy}", port=-1, on_nonfinite=policy, step_log=f"{out}l",
                            snapshot_every=10 if policy == "rollback" else 0)
    agent.on_rollback(rollbacks.append)
    generator = torch.Generator().manual_seed(1)
    for step in range(1, STEPS + 1):
        inputs, wanted = examples(letters[:border], 64, generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), wanted).backward()
        if fault == "gradient" and step % EVERY == 0:
            model[2].weight.grad[3, 4] = float("nan")
        optimizer.step()
        if fault == "state" and step == POISONED:
            optimizer.state[model[2].weight]["exp_avg"][3, 4] = float("nan")
    model.eval()
    inputs, wanted = examples(letters[border:], 4096, torch.Generator().manual_seed(2))
    with torch.no_grad():
        loss = float(torch.nn.functional.cross_entropy(model(inputs), wanted))
    agent.detach()
    skipped = sum(json.loads(line).get("skipped") == "governor" for line in Path(f"{out}l").read_text().splitlines())
    Path(out).write_text(json.dumps({"held_out_loss": loss, "skipped_steps": skipped, "rollbacks": len(rollbacks)}))


if __name__ == "__main__":
    main()
