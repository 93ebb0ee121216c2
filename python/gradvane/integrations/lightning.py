"""Lightning: Trainer(callbacks=[GradvaneCallback(run="gpt2")])."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

import gradvane
from gradvane._errors import described
from gradvane._log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from gradvane.options import Options



class GradvaneCallback(Callback):  # type: ignore[misc]
    """Watches the trainer's module and optimizers from the beginning of fit() to its end, on every rank.

    What the module logs with self.log() becomes gradvane_user_metric{name}, in the step that it was logged in. Its
    validation is the phase "evaluation". Samples and tokens are counted, each rank its own: a batch has as many samples
    as its first tensor has rows, and as many tokens as its "input_ids" has elements, if it is a mapping with these.
    `tokens` says it of any other batch: it gets the batch and returns their number. Where a policy stops the run, the
    trainer stops as it does for early stopping. Options are those of gradvane.attach().
    """

    def __init__(self, *, tokens: Callable[[Any], int] | None = None, **options: Unpack[Options]) -> None:
        self._options = options
        self._tokens = tokens
        self.agent: gradvane.Agent | None = None
        self._validation = contextlib.ExitStack()
        self._saves_nothing = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.agent = gradvane.attach(pl_module, list(trainer.optimizers), **self._options)
        self.agent.raise_at_stop(False)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        samples, tokens = _work_in(batch)
        if self._tokens is not None:
            try:
                tokens = int(self._tokens(batch))
            except Exception:
                self._tokens, tokens = lambda _: 0, 0
                logger.warning("tokens(batch) failed; tokens are not counted", exc_info=True)
        gradvane.count(tokens=tokens, samples=samples)

    def on_before_optimizer_step(self, trainer: Any, *_: Any) -> None:
        if self.agent is not None:
            # The agent measures the loss itself, over all batches of the step.
            self.agent.log({name: value for name, value in trainer.logged_metrics.items() if name != "loss"})

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if self.agent is None or not self.agent.should_stop:
            return
        trainer.should_stop = True
        self._saves_nothing = self.agent._leaves_out_checkpoints(trainer.world_size)
        if self._saves_nothing:
            for callback in _checkpoints(trainer):
                callback._last_global_step_saved = trainer.global_step  # none saves a step twice

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._validation.enter_context(gradvane.phase("evaluation"))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._validation.close()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self._saves_nothing:
            for callback in _checkpoints(trainer):  # Lightning calls them behind all others
                # The last state is saved at the end only by one that has saved none before.
                callback._last_checkpoint_saved = getattr(callback, "_last_checkpoint_saved", "") or "none"
        if self.agent is not None:
            self.agent.detach()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.agent is not None:
            self.agent.fail(described(exception))


def _checkpoints(trainer: Any) -> list[Any]:
    return [callback for callback in trainer.checkpoint_callbacks if isinstance(callback, ModelCheckpoint)]


def _work_in(batch: Any) -> tuple[int, int]:
    """Samples and tokens; 0 where that cannot be told."""
    if isinstance(batch, Mapping):
        parts = list(batch.values())
        words = batch.get("input_ids")
    else:
        parts = list(batch) if isinstance(batch, (list, tuple)) else [batch]
        words = None
    rows = [part.shape[0] for part in parts if isinstance(part, torch.Tensor) and part.dim() > 0]
    return rows[0] if rows else 0, words.numel() if isinstance(words, torch.Tensor) else 0
