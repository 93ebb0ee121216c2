"""Hugging Face: Trainer(..., callbacks=[GradvaneCallback(run="gpt2")])."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

import gradvane

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gradvane.options import Options


class GradvaneCallback(TrainerCallback):  # type: ignore[misc]
    """Watches the Trainer's model and optimizer from the beginning of training to its end, on every rank.

    What the Trainer logs becomes gradvane_user_metric{name}. Options are those of gradvane.attach().
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self._options = options
        self.agent: gradvane.Agent | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        if optimizer is None:
            self.agent = gradvane.attach(model, **self._options)
        else:  # Accelerate wraps the one that steps
            self.agent = gradvane.attach(model, getattr(optimizer, "optimizer", optimizer), **self._options)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if self.agent is None:
            return
        numbers = {key: value for key, value in (logs or {}).items() if isinstance(value, (int, float))}
        # The agent measures these itself, every step.
        for known in ("loss", "grad_norm", "learning_rate"):
            numbers.pop(known, None)
        self.agent.log(numbers)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.agent is not None:
            self.agent.detach()
