"""Who is to blame, from questions and answers that are written down."""

from __future__ import annotations

import pytest

from gradvane._blame import FINITE, MINUS_INFINITY, NAN, PLUS_INFINITY, UNKNOWN, Call, Event, Kind, Passage, first_bad


class Step:
    """Writes events down as a watch does."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.answers: list[int] = []

    def tell(self, kind: Kind, answer: int, call=None, passage=None) -> int:
        question = len(self.answers)
        self.answers.append(answer)
        self.events.append(Event(question, kind, question, call, passage, 1))
        if kind is Kind.OUTPUT:
            call.outputs.append(question)
        return question

    def verdict(self):
        found = first_bad(self.events, self.answers)
        return found and (found.call and found.call.module, found.at, found.is_backward)


def calls(*names: str) -> list[Call]:
    """Each within the one before."""
    made: list[Call] = []
    for name in names:
        made.append(Call(name, made[-1] if made else None, 0))
    return made


def test_nothing_is_to_blame_where_all_is_finite():
    step = Step()
    model, layer = calls("model", "layer")
    step.tell(Kind.OUTPUT, FINITE, layer)
    step.tell(Kind.OUTPUT, FINITE, model)
    step.tell(Kind.LOSS, FINITE)
    step.tell(Kind.GRADIENT, FINITE, passage=Passage(None, 0))
    assert step.verdict() is None


@pytest.mark.parametrize(("loss", "expected"), [
    (NAN, ("layer", "module", False)), (UNKNOWN, ("layer", "module", False)), (FINITE, None)])
def test_a_finite_loss_acquits_the_forward(loss, expected):
    step = Step()
    model, layer = calls("model", "layer")
    step.tell(Kind.OUTPUT, NAN, layer)
    step.tell(Kind.OUTPUT, NAN, model)
    step.tell(Kind.LOSS, loss)
    assert step.verdict() == expected


def test_what_stays_within_a_module_is_no_cause():
    step = Step()
    model, attention, mask = calls("model", "attention", "mask")
    head = Call("head", model, 0)
    step.tell(Kind.OUTPUT, MINUS_INFINITY, mask)
    step.tell(Kind.OUTPUT, FINITE, attention)
    step.tell(Kind.OUTPUT, NAN, head)
    step.tell(Kind.OUTPUT, NAN, model)
    step.tell(Kind.LOSS, NAN)
    assert step.verdict() == ("head", "module", False)


@pytest.mark.parametrize(("answer", "expected"), [
    (MINUS_INFINITY, "softmax"), (PLUS_INFINITY, "attention"), (NAN, "attention")])
def test_an_input_that_no_module_made_is_the_deed_of_the_code_around_unless_it_is_a_mask(answer, expected):
    step = Step()
    _, attention, softmax = calls("model", "attention", "softmax")
    step.tell(Kind.INPUT, answer, softmax)
    for call in softmax.around():
        step.tell(Kind.OUTPUT, NAN, call)
    step.tell(Kind.LOSS, NAN)
    assert step.verdict() == (expected, "module", False)


def test_masked_outputs_without_a_loss_are_no_cause():
    step = Step()
    (model,) = calls("model")
    step.tell(Kind.OUTPUT, MINUS_INFINITY, model)
    assert step.verdict() is None
    step.tell(Kind.LOSS, UNKNOWN)
    assert step.verdict() is None
    step.answers[-1] = NAN
    assert step.verdict() == ("model", "module", False)


def test_of_several_that_took_a_tensor_the_innermost_is_named_or_what_is_around_them():
    model, block, norm = calls("model", "block", "norm")
    for takers, expected in [
        ([block, norm], "norm"),
        ([Call("q", block, 0), Call("k", block, 0)], "block"),
        ([norm, Call("head", model, 0)], "model"),
        ([Call("one", None, 0), Call("two", None, 0)], "two"),
    ]:
        step = Step()
        step.tell(Kind.GRADIENT, NAN, passage=Passage(None, 0, takers=takers))
        assert step.verdict() == (expected, "module", True)


def test_a_tensor_that_nobody_took_was_used_by_the_code_it_was_left_in():
    _, block = calls("model", "block")
    step = Step()
    step.tell(Kind.GRADIENT, NAN, passage=Passage(block, 0))
    assert step.verdict() == ("block", "module", True)
    step = Step()
    step.tell(Kind.GRADIENT, NAN, passage=Passage(None, 0))
    assert step.verdict() == (None, "loss", True)


def test_the_first_of_two_micro_steps_counts():
    step = Step()
    (one,) = calls("one")
    (two,) = calls("two")
    step.tell(Kind.OUTPUT, FINITE, one)
    step.tell(Kind.LOSS, FINITE)
    step.tell(Kind.WEIGHT_GRADIENT, NAN, one)
    step.tell(Kind.OUTPUT, NAN, two)
    step.tell(Kind.LOSS, NAN)
    assert step.verdict() == ("one", "module", True)
