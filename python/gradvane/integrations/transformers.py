"""Hugging Face: Trainer(..., callbacks=[GradvaneCallback(run="gpt2")])."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

import gradvane

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gradvane.options import Options


class GradvaneCallback(TrainerCallback):  # type: ignore[misc]
    """Watches the Trainer's model and optimizer from the beginning of training to its end, on every rank.

    What the Trainer logs becomes gradvane_user_metric{name}. Its evaluations and checkpoints become phases, and with
    include_num_input_tokens_seen its tokens are counted, each rank its share. Where a policy stops the run, the Trainer
    stops as it does for early stopping. Options are those of gradvane.attach().
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self._options = options
        self.agent: gradvane.Agent | None = None
        self._phase = contextlib.ExitStack()
        self._is_evaluating = False
        self._tokens = 0

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        self._tokens = _tokens_of(args, state)
        if optimizer is None:
            self.agent = gradvane.attach(model, **self._options)
        else:  # Accelerate wraps the one that steps
            self.agent = gradvane.attach(model, getattr(optimizer, "optimizer", optimizer), **self._options)
        self.agent.raise_at_stop(False)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if self.agent is None:
            return
        numbers = {key: value for key, value in (logs or {}).items() if isinstance(value, (int, float))}
        # The agent measures these itself, every step.
        for known in ("loss", "grad_norm", "learning_rate"):
            numbers.pop(known, None)
        self.agent.log(numbers)
        if control.should_save and not control.should_evaluate:  # the next thing that the Trainer does
            self._enter("checkpoint")

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._leave()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        tokens = _tokens_of(args, state)
        gradvane.count(tokens=tokens - self._tokens)
        self._tokens = tokens

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.agent is not None and self.agent.should_stop:
            control.should_training_stop = True
        if control.should_save and not control.should_evaluate and not control.should_log:
            self._enter("checkpoint")

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not self._is_evaluating:
            self._enter("evaluation")
            self._is_evaluating = True

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._leave()
        if control.should_save:
            self._enter("checkpoint")

    def on_predict(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._leave()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._leave()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._leave()
        if self.agent is not None:
            self.agent.detach()

    def _enter(self, phase: gradvane.Phase) -> None:
        self._leave()
        self._phase.enter_context(gradvane.phase(phase))

    def _leave(self) -> None:
        self._phase.close()
        self._is_evaluating = False


def _tokens_of(args: Any, state: Any) -> int:
    """This rank's share: the Trainer adds up those of all ranks. 0 where it does not count."""
    return int(getattr(state, "num_input_tokens_seen", 0)) // max(int(args.world_size), 1)
