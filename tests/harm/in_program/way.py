"""The only thing that differs between the four runs of one program: what these functions do."""

import contextlib
from pathlib import Path

WAY = Path("way").read_text().strip()
_agents = []


def attach(*what, **options):
    if WAY.startswith("attach"):
        import gradvane

        _agents.append(gradvane.attach(*what, **options))


def detach():
    """In the fourth way the training goes on without an agent from here."""
    if WAY == "attach, detach" and _agents:
        _agents.pop().detach()


def end_agent():
    """Ends the agent in the third way as well, for programs that start a second one."""
    if WAY == "attach":
        _agents.pop().detach()
    else:
        detach()


def clip_grad_norm_(parameters, max_norm, **how):
    """Ours where the run is watched, torch's where it is not."""
    if WAY == "plain":
        import torch

        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, **how)
    import gradvane

    return gradvane.clip_grad_norm_(parameters, max_norm, **how)


def phase(name):
    """Ours where the run is watched, nothing where it is not."""
    if WAY == "plain":
        return contextlib.nullcontext()
    import gradvane

    return gradvane.phase(name)


def mark(name):
    """A file that the suite waits for before it sends a signal."""
    Path(name).touch()
