"""A training whose state a Keeper keeps, without an agent: its hooks are those of the optimizers here."""

from __future__ import annotations

import contextlib

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gradvane._governor.keeper import Keeper


@contextlib.contextmanager
def keeper_of(models, optimizers, **keep):
    """Keeps the models' and optimizers' state while the block runs; `keep`: as Keeper.keep(), and its clock."""
    made = {key: keep.pop(key) for key in ("clock", "streams") if key in keep}
    keeper = Keeper(lambda: list(models), lambda: list(optimizers), **made)
    keeper.keep(**keep)
    hooks = [register_optimizer_step_pre_hook(lambda *_: keeper.before_step()),
             register_optimizer_step_post_hook(lambda optimizer, *_: keeper.after_step(optimizer) and None)]
    try:
        yield keeper
    finally:
        for hook in hooks:
            hook.remove()
        keeper.stop()


def everything(models, optimizers):
    """All tensors of models and optimizers, and the other values, by name: clones."""
    found = {}
    for i, model in enumerate(models):
        found.update({f"model {i} {k}": v.detach().clone() for k, v in model.named_parameters()})
        found.update({f"model {i} {k}": v.detach().clone() for k, v in model.named_buffers()})
    for i, optimizer in enumerate(optimizers):
        keys = list(optimizer.state)
        for j, key in enumerate(keys):
            _put(found, f"optimizer {i} state {j}", optimizer.state[key])
        for j, group in enumerate(optimizer.param_groups):
            _put(found, f"optimizer {i} group {j}", {k: v for k, v in group.items() if k != "params"})
    found["random"] = torch.get_rng_state()
    return found


def _put(found, name, value):
    if isinstance(value, torch.Tensor):
        found[name] = value.detach().clone()
    elif isinstance(value, dict):
        for key, item in value.items():
            _put(found, f"{name}.{key}", item)
    elif isinstance(value, (list, tuple)):
        found[f"{name} length"] = len(value)
        for i, item in enumerate(value):
            _put(found, f"{name}[{i}]", item)
    else:
        found[name] = value


def differences(a, b):
    """Names of what is not the same to the last bit; NaN is the same as NaN."""
    different = sorted(set(a) ^ set(b))
    for name in set(a) & set(b):
        if isinstance(a[name], torch.Tensor):
            same = (isinstance(b[name], torch.Tensor) and a[name].dtype == b[name].dtype
                    and a[name].shape == b[name].shape
                    and bytes(a[name].contiguous().view(-1).view(torch.uint8).tolist() if a[name].numel() else [])
                    == bytes(b[name].contiguous().view(-1).view(torch.uint8).tolist() if b[name].numel() else []))
        else:
            same = a[name] == b[name]
        if not same:
            different.append(name)
    return different


class ScheduleFreeLike(torch.optim.Optimizer):
    """As schedule-free optimizers: a second sequence of weights, counters in the groups, an average in the weights."""

    def __init__(self, params, lr=0.05, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta, "k": 0, "weight_sum": 0.0, "train_mode": True})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] += 1
            weight = group["k"] ** 2
            group["weight_sum"] += weight
            share = weight / group["weight_sum"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["z"] = p.clone()
                    state["history"] = {"norms": [], "last": None}
                z = state["z"]
                z.sub_(p.grad, alpha=group["lr"])
                p.lerp_(z, share)
                state["history"]["norms"] = (state["history"]["norms"] + [float(p.norm())])[-3:]
                state["history"]["last"] = p.grad.clone()
