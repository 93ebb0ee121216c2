"""Telemetry for PyTorch training, from inside the process that trains.

    import gradvane

    gradvane.attach(model, optimizer, run="gpt")

From then on every optimizer step is measured where its gradients live, without a host sync, and served at
http://localhost:9464: a page, /metrics for Prometheus, /api/v1/* as JSON. `gradvane run train.py` does the
same to a script that does not know of Gradvane.

Importing this package loads neither torch nor the native part: attach() does.
"""

from gradvane._agent import Agent
from gradvane._errors import GradvaneError, TrainingStopped
from gradvane._functions import (
    Phase,
    attach,
    clip_grad_norm_,
    count,
    finish,
    is_state_good,
    log,
    phase,
    trace_nonfinite,
)
from gradvane._governor.record import Rollback
from gradvane._outside import outside_steps
from gradvane._records import Appearance, Blame, Incident, Status, StepRecord, TracedModule

__all__ = [
    "Agent",
    "Appearance",
    "Blame",
    "GradvaneError",
    "Incident",
    "Phase",
    "Rollback",
    "Status",
    "StepRecord",
    "TracedModule",
    "TrainingStopped",
    "attach",
    "clip_grad_norm_",
    "count",
    "finish",
    "is_state_good",
    "log",
    "outside_steps",
    "phase",
    "trace_nonfinite",
]
