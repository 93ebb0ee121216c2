"""Whether tensors are finite, asked where they are and answered later."""

from __future__ import annotations

import math
import threading

import pytest
import torch
from gradvane._finite_checks import FiniteChecks, Finiteness

FINITE, MINUS, PLUS, NAN, UNKNOWN = (
    Finiteness.FINITE, Finiteness.MINUS_INFINITY, Finiteness.PLUS_INFINITY, Finiteness.NAN, Finiteness.UNKNOWN)


def of(tensor: object) -> Finiteness:
    checks = FiniteChecks()
    return UNKNOWN if checks.add(tensor) < 0 else Finiteness(checks.take()[0][0])


def holding(value: float, dtype: torch.dtype, size: int, at: int) -> torch.Tensor:
    tensor = torch.ones(size)
    tensor[at] = value
    return tensor.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_it_is_seen_at_every_place_and_in_every_type(dtype):
    for size in (1, 7, 64, 1000):
        for at in range(0, size, 1 if size < 100 else 37):
            assert of(holding(math.nan, dtype, size, at)) == NAN
            assert of(holding(math.inf, dtype, size, at)) == PLUS
            assert of(holding(-math.inf, dtype, size, at)) == MINUS
            assert of(holding(3, dtype, size, at)) == FINITE


def test_the_largest_numbers_of_a_type_are_finite():
    assert of(torch.full((100_000,), 3e38)) == FINITE, "no sum that overflows"
    assert of(torch.full((100_000,), 65504, dtype=torch.float16)) == FINITE
    assert of(torch.full((10,), -1e300, dtype=torch.float64)) == FINITE


def test_the_worst_is_said():
    assert of(torch.tensor([-math.inf, 1.0, math.inf])) == PLUS
    assert of(torch.tensor([-math.inf, math.nan, math.inf])) == NAN


def test_what_is_not_dense_is_asked_too():
    bad = torch.ones(6, 8)
    bad[5, 7] = math.nan
    assert of(bad.t()) == NAN
    assert of(bad[:5]) == FINITE, "only what the view shows"
    assert of(bad[:, ::2]) == FINITE
    assert of(bad[:, 1::2]) == NAN
    assert of(torch.tensor(math.nan).expand(1000, 1000)) == NAN
    assert of(bad[5].unsqueeze(1).expand(8, 50)) == NAN
    assert of(torch.complex(torch.ones(4), torch.full((4,), math.nan))) == NAN
    assert of(torch.complex(torch.ones(4), torch.ones(4)).conj()) == FINITE
    assert of(torch.sparse_coo_tensor(torch.tensor([[1]]), torch.tensor([math.nan]), (5,))) == NAN
    assert of(torch.ones(3).to(torch.float8_e4m3fn)) == FINITE
    assert of(torch.full((3,), math.nan).to(torch.float8_e4m3fn)) == NAN


def test_what_has_no_numbers_is_not_asked():
    for tensor in (None, torch.empty(0), torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.bool),
                   torch.empty(3, device="meta")):
        assert of(tensor) == UNKNOWN


def test_answers_come_in_the_order_of_the_questions_whatever_the_types():
    checks = FiniteChecks()
    assert [checks.add(tensor) for tensor in (
        torch.ones(3), torch.full((3,), math.nan, dtype=torch.float16), torch.ones(3, dtype=torch.int32),
        torch.full((3,), math.inf, dtype=torch.float64), torch.full((3,), 1e300, dtype=torch.float64),
        torch.full((3,), -math.inf, dtype=torch.bfloat16), torch.ones(3, dtype=torch.float16))] == [0, 1, -1, 2, 3, 4, 5]
    answers, host_syncs = checks.take()
    assert answers == [FINITE, NAN, PLUS, FINITE, MINUS, FINITE]
    assert host_syncs == 0, "a CPU is not waited for"
    assert checks.take() == ([], 0)


def test_thousands_are_remembered():
    checks = FiniteChecks()
    for i in range(5000):
        value = math.nan if i % 1000 == 7 else 1.0
        assert checks.add(torch.full((1,), value, dtype=torch.float16 if i % 3 == 0 else torch.float32)) == i
    answers, _ = checks.take()
    assert answers == [NAN if i % 1000 == 7 else FINITE for i in range(5000)]
    assert checks.add(torch.ones(1)) == 0, "from the beginning again"


def test_no_trace_is_left_on_the_tensor_or_the_graph():
    value = torch.randn(4, 4, requires_grad=True) * 2
    version = value._version
    checks = FiniteChecks()
    checks.add(value)
    assert value._version == version and value.is_leaf is False
    assert checks.take()[0] == [FINITE]
    with torch.inference_mode():
        assert of(torch.full((3,), math.nan)) == NAN


def test_a_mode_of_the_program_sees_nothing_of_it():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[object] = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    tensor = torch.ones(4, requires_grad=True)
    with Dispatch(), Function():
        assert of(tensor) == FINITE
        assert seen == []
        torch.aminmax(tensor)
        assert len(seen) >= 2, "and a call of the program's own it does see"


def test_calls_are_booked_as_gradvanes_own_also_when_they_fail():
    deltas: list[int] = []
    checks = FiniteChecks(deltas.append)
    checks.add(torch.ones(2))
    checks.add(torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8))
    checks.take()
    assert deltas == [1, -1, 1, -1, 1, -1]


def test_many_threads_may_ask():
    checks = FiniteChecks()

    def ask(thread: int) -> None:
        for _ in range(200):
            checks.add(torch.full((8,), math.nan if thread == 3 else 1.0))

    threads = [threading.Thread(target=ask, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers, _ = checks.take()
    assert len(answers) == 800 and answers.count(NAN) == 200
