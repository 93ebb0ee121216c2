"""Lightning: Trainer(callbacks=[GradvaneCallback(run="gpt2")])."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback

import gradvane
from gradvane._errors import described

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gradvane.options import Options


class GradvaneCallback(Callback):  # type: ignore[misc]
    """Watches the trainer's module and optimizers from the beginning of fit() to its end, on every rank.

    What the module logs with self.log() becomes gradvane_user_metric{name}. Its validation is the phase "evaluation".
    Where a policy stops the run, the trainer stops as it does for early stopping. Options are those of
    gradvane.attach().
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self._options = options
        self.agent: gradvane.Agent | None = None
        self._validation = contextlib.ExitStack()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.agent = gradvane.attach(pl_module, list(trainer.optimizers), **self._options)
        self.agent.raise_at_stop(False)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if self.agent is not None:
            if self.agent.should_stop:
                trainer.should_stop = True
            # The agent measures the loss itself, of the step that it belongs to.
            self.agent.log({name: value for name, value in trainer.logged_metrics.items() if name != "loss"})

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._validation.enter_context(gradvane.phase("evaluation"))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._validation.close()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.agent is not None:
            self.agent.detach()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.agent is not None:
            self.agent.fail(described(exception))
