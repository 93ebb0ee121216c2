"""Runs a script and writes what torch itself says of its steps: an observer that shares nothing with ours.

python reference.py OUT.json script.py: gradients are cloned in fp64 and their norms taken one by one, where
the script clips, or where its optimizer steps, or behind backward() where there is no optimizer.
"""

import json
import runpy
import sys

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


def norm_of(params):
    squares = [p.grad.double().pow(2).sum() for p in params if p.grad is not None]
    return float(torch.stack(squares).sum().sqrt()) if squares else None


def main(out, script):
    steps = []
    pending = {"norm": None, "losses": []}
    backward, clip = torch.autograd.backward, torch.nn.utils.clip_grad_norm_

    def observed_backward(tensors, *args, **kwargs):
        backward(tensors, *args, **kwargs)
        pending["losses"].append(float(tensors.detach()))

    def observed_clip(parameters, max_norm, *args, **kwargs):
        params = list(parameters)
        pending["norm"] = norm_of(params)
        pending["max"] = max_norm
        result = clip(params, max_norm, *args, **kwargs)
        if "by_hand" in pending:
            finish(None, pending["norm"])
        return result

    def finish(optimizer, norm):
        steps.append({"norm": norm, "losses": pending["losses"], "max": pending.get("max"),
                      "lr": [g["lr"] for g in optimizer.param_groups] if optimizer else []})
        pending.update(norm=None, losses=[])

    def before(optimizer, args, kwargs):
        params = [p for g in optimizer.param_groups for p in g["params"]]
        if pending["norm"] is None:
            pending["norm"] = norm_of(params)

    def after(optimizer, args, kwargs):
        params = [p for g in optimizer.param_groups for p in g["params"]]
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        finish(optimizer, norm_of(params) if closure else pending["norm"])

    torch.autograd.backward = observed_backward
    torch.nn.utils.clip_grad_norm_ = observed_clip
    torch.nn.utils.clip_grad.clip_grad_norm_ = observed_clip
    if "word_model" in script:
        pending["by_hand"] = True
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")
    with open(out, "w") as file:
        json.dump(steps, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
