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
    stops as it does for early stopping. Options are those of gradvane.attach(); flops_per_token follows from the model's
    parameters if it is not given.
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
        options = self._options
        if options.get("flops_per_token") is None:
            options = {**options, "flops_per_token": _flops_per_token(model)}
        if optimizer is None:
            self.agent = gradvane.attach(model, **options)
        else:  # Accelerate wraps the one that steps
            self.agent = gradvane.attach(model, getattr(optimizer, "optimizer", optimizer), **options)
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
            self._saves_nothing_bad(args, control)
        if control.should_save and not control.should_evaluate and not control.should_log:
            self._enter("checkpoint")

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._saves_nothing_bad(args, control)

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

    def _saves_nothing_bad(self, args: Any, control: Any) -> None:
        """Where a policy stops the run because it diverges, the state is bad: no checkpoint of it replaces a good one."""
        if self.agent is not None and self.agent._leaves_out_checkpoints(args.world_size):
            control.should_save = False

    def _enter(self, phase: gradvane.Phase) -> None:
        self._leave()
        self._phase.enter_context(gradvane.phase(phase))

    def _leave(self) -> None:
        self._phase.close()
        self._is_evaluating = False


def _tokens_of(args: Any, state: Any) -> int:
    """This rank's share: the Trainer adds up those of all ranks. 0 where it does not count."""
    return int(getattr(state, "num_input_tokens_seen", 0)) // max(int(args.world_size), 1)


def _flops_per_token(model: Any) -> float:
    """FLOP of a forward and a backward pass for a token, without attention: 2 for each parameter forward, 2 for the
    gradients of the activations, and 2 for the gradient of each one that is trained (Kaplan et al., 2020: 6 N). A table
    of embeddings is looked up, and multiplied only if the output layer shares it. 0 if the model does not say."""
    try:
        parameters, trained = model.num_parameters(), model.num_parameters(only_trainable=True)
        table, head = model.get_input_embeddings(), model.get_output_embeddings()
        if table is not None and (head is None or head.weight is not table.weight):
            parameters -= table.weight.numel()
            trained -= table.weight.numel() if table.weight.requires_grad else 0
    except Exception:  # not a model of Transformers, or one of its own kind
        return 0.0
    return float(4 * parameters + 2 * trained)
