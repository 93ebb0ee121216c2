"""gradvane.clip_grad_norm_ against torch's, which it stands in for: arguments, errors, types, norms, gradients."""

import time
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import gradvane

TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-6, torch.bfloat16: 2.0**-6, torch.float16: 2.0**-9}
"""Relative. Torch rounds the norm and the coefficient of 16-bit gradients to 16 bits; ours is in fp64 and rounded
once, so it lies nearer to the exact one."""


def params_of(*dtypes, seed=0, frozen=(), without=(), scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    params = []
    for i, dtype in enumerate(dtypes):
        param = torch.nn.Parameter(torch.zeros(3, 4 + i, dtype=dtype))
        if i not in without:
            param.grad = (torch.randn(3, 4 + i, generator=generator) * scale).to(dtype)
        if i in frozen:
            param.requires_grad_(False)
        params.append(param)
    return params


def both(watching, make, call):
    """What `call(clip, params)` gives, and the gradients then: with torch's function, and with ours and an agent."""
    theirs = make()
    with warnings.catch_warnings(record=True) as their_warnings:
        warnings.simplefilter("always")
        their_result = result_of(call, torch.nn.utils.clip_grad_norm_, theirs)
    ours = make()
    optimizer = torch.optim.SGD(ours, 0.1)  # the agent does not keep it alive
    agent = watching(None, optimizer)
    with warnings.catch_warnings(record=True) as our_warnings:
        warnings.simplefilter("always")
        our_result = result_of(call, gradvane.clip_grad_norm_, ours)
    assert agent._watcher.only() is not None and optimizer is not None
    assert agent._watcher.faults == 0
    assert [str(one.message) for one in our_warnings] == [str(one.message) for one in their_warnings]
    return their_result, our_result, theirs, ours


def result_of(call, clip, params):
    try:
        return call(clip, params)
    except Exception as error:
        return type(error), str(error)


def expect_same(their_result, our_result, theirs, ours):
    if isinstance(their_result, torch.Tensor):
        assert isinstance(our_result, torch.Tensor)
        assert our_result.dtype == their_result.dtype
        assert our_result.device == their_result.device and our_result.shape == their_result.shape
        close(our_result, their_result, coarsest(theirs))
    else:
        assert our_result == their_result
    for a, b in zip(theirs, ours):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            close(b.grad, a.grad, coarsest(theirs))


def coarsest(params):
    """Torch's norm of gradients of several types is as exact as the coarsest of them."""
    return max((TOLERANCE[p.grad.dtype] for p in params if p.grad is not None), default=0.0)


def close(ours, theirs, tolerance):
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=1e-30, equal_nan=True)


F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
CALLS = {
    "all parameters": lambda clip, params: clip(params, 0.5),
    "a generator": lambda clip, params: clip((p for p in params), 0.5),
    "an empty generator": lambda clip, params: clip((p for p in ()), 0.5),
    "an empty list": lambda clip, params: clip([], 0.5),
    "a tuple": lambda clip, params: clip(tuple(params), 0.5),
    "one tensor": lambda clip, params: clip(params[0], 0.5),
    "a part": lambda clip, params: clip(params[:1], 0.5),
    "a parameter twice": lambda clip, params: clip([*params, params[0]], 0.5),
    "a stranger too": lambda clip, params: clip([*params, *params_of(F32, seed=5)], 0.5),
    "by keyword": lambda clip, params: clip(parameters=params, max_norm=0.5),
    "an integer norm": lambda clip, params: clip(params, 1, 2),
    "a large max_norm": lambda clip, params: clip(params, 1e6),
    "max_norm 0": lambda clip, params: clip(params, 0.0),
    "max_norm infinite": lambda clip, params: clip(params, float("inf")),
    "max_norm NaN": lambda clip, params: clip(params, float("nan")),
    "max_norm negative": lambda clip, params: clip(params, -1.0),
    "max_norm a tensor": lambda clip, params: clip(params, torch.tensor(0.5)),
    "max_norm a word": lambda clip, params: clip(params, "much"),
    "no max_norm": lambda clip, params: clip(params),
    "norm_type 1": lambda clip, params: clip(params, 0.5, 1.0),
    "norm_type inf": lambda clip, params: clip(params, 0.5, float("inf")),
    "norm_type as a word": lambda clip, params: clip(params, 0.5, "inf"),
    "norm_type 2 as a word": lambda clip, params: clip(params, 0.5, "2"),
    "norm_type of no sense": lambda clip, params: clip(params, 0.5, "two"),
    "error_if_nonfinite": lambda clip, params: clip(params, 0.5, 2.0, True),
    "error_if_nonfinite by keyword": lambda clip, params: clip(params, 0.5, error_if_nonfinite=True),
    "foreach": lambda clip, params: clip(params, 0.5, 2.0, False, True),
    "not foreach": lambda clip, params: clip(params, 0.5, foreach=False),
    "too many arguments": lambda clip, params: clip(params, 0.5, 2.0, False, None, 1),
    "an unknown argument": lambda clip, params: clip(params, 0.5, norm="l2"),
    "not a tensor": lambda clip, params: clip([*params, "w"], 0.5),
    "nothing to go through": lambda clip, params: clip(3, 0.5),
}
MODELS = {
    "fp32": lambda: params_of(F32, F32, F32),
    "fp64": lambda: params_of(F64, F64),
    "bf16": lambda: params_of(BF16, BF16),
    "fp16": lambda: params_of(F16, F16),
    "fp32 and bf16": lambda: params_of(F32, BF16, F32, BF16),
    "some without a gradient": lambda: params_of(F32, F32, F32, without=(1,)),
    "none with a gradient": lambda: params_of(F32, F32, without=(0, 1)),
    "frozen with a gradient": lambda: params_of(F32, F32, frozen=(1,)),
    "small": lambda: params_of(F32, F32, scale=1e-6),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_way_to_call_it_is_torchs(watching, call):
    expect_same(*both(watching, MODELS["fp32"], call))


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_every_kind_of_gradient_is_clipped_as_torch_does(watching, make):
    expect_same(*both(watching, make, CALLS["all parameters"]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("call", ["all parameters", "error_if_nonfinite"])
def test_gradients_that_are_not_finite_are_treated_as_torch_does(watching, bad, call):
    def make():
        params = params_of(F32, F32)
        params[1].grad[0, 2] = bad
        return params

    expect_same(*both(watching, make, CALLS[call]))


def test_the_signature_is_torchs():
    import inspect

    ours, theirs = inspect.signature(gradvane.clip_grad_norm_), inspect.signature(torch.nn.utils.clip_grad_norm_)
    assert [(p.name, p.kind, p.default) for p in ours.parameters.values()] == [
        (p.name, p.kind, p.default) for p in theirs.parameters.values()]


@pytest.mark.parametrize("options", [{"norm_type": 1.0}, {"error_if_nonfinite": True}, {"foreach": False}])
def test_where_torch_clips_the_bits_are_torchs(watching, options):
    _, _, theirs, ours = both(watching, lambda: params_of(F32, F32), lambda clip, params: clip(params, 0.5, **options))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(theirs, ours))


def test_16_bit_gradients_come_out_nearer_to_the_exact_ones_than_torchs(watching):
    exact = params_of(BF16, BF16, BF16)
    norm = torch.stack([p.grad.double().square().sum() for p in exact]).sum().sqrt()
    _, _, theirs, ours = both(watching, lambda: params_of(BF16, BF16, BF16), CALLS["all parameters"])

    def error(params):
        return max(float(((p.grad.double() - e.grad.double() * 0.5 / norm).abs() / e.grad.double().abs()).max())
                   for p, e in zip(params, exact))

    assert error(ours) <= error(theirs)
    assert error(ours) <= 2.0**-8  # a half unit of the last place of bf16, with room


class Calls(TorchDispatchMode):
    """Operators as the dispatcher sees them: what is a launch or a few on a device."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtypes", [(BF16,) * 1000, (F32, BF16) * 500, (F32,) * 1000],
                         ids=["bf16", "fp32 and bf16", "fp32"])
@pytest.mark.parametrize("sparse", [False, True], ids=["read by the pass", "read by torch"])
def test_a_thousand_tensors_are_clipped_in_a_few_calls(watching, dtypes, sparse):
    params = [torch.nn.Parameter(torch.zeros(8, dtype=dtype)) for dtype in dtypes]
    for param in params:
        param.grad = torch.ones(8, dtype=param.dtype)
    if sparse:  # a frozen parameter with a gradient: the pass does not read it
        params[0].requires_grad_(False)
    optimizer = torch.optim.SGD(params, 0.1)
    agent = watching(None, optimizer)
    assert agent._watcher.clips.own_clip(params) == (0, True)
    assert agent._native.is_sharded(0) is False
    with Calls() as calls:
        gradvane.clip_grad_norm_(params, 1.0)
    assert len(calls.names) <= 30, calls.names
    norm = 8000**0.5
    assert all(p.grad.float() == pytest.approx(1 / norm, rel=2.0**-7) for p in params[:4])


def test_a_list_of_one_type_gets_its_coefficient_in_that_type(watching):
    """The operators of a device are fast only then: they launch once for each tensor otherwise."""
    params = params_of(F32, BF16, F32, BF16, frozen=(0,))
    optimizer = torch.optim.SGD(params, 0.1)
    agent = watching(None, optimizer)
    assert agent._watcher.clips.own_clip(params) == (0, True)
    assert agent._native.is_sharded(0) is False
    seen = []

    class Types(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.__name__.startswith("_foreach_mul_"):
                seen.append(({tensor.dtype for tensor in args[0]}, args[1].dtype))
            return func(*args, **(kwargs or {}))

    with Types():
        gradvane.clip_grad_norm_(params, 0.5)
    assert sorted(seen, key=str) == [({BF16}, BF16), ({F32}, F32)]


# What is read, and when -------------------------------------------------------------------------------


def trained(watching):
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = watching(model, optimizer)
    model(torch.randn(3, 6)).square().sum().backward()
    return agent, model, optimizer


WRITES = {
    "through .data": lambda p: p.grad.data.mul_(10),
    "under the version counter": lambda p: torch.from_numpy(p.grad.numpy()).mul_(10),
    "as anybody does": lambda p: p.grad.mul_(10),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("read", ["grad_norm", "get_total_norm"])
def test_gradients_that_changed_since_they_were_read_are_clipped_by_their_norm_of_now(watching, read, write):
    agent, model, optimizer = trained(watching)
    params = list(model.parameters())
    if read == "grad_norm":
        before = float(agent.grad_norm())
    else:
        before = float(torch.nn.utils.get_total_norm([p.grad for p in params]))
    for p in params:
        write(p)
    expected = [p.grad.clone() for p in params]
    norm = gradvane.clip_grad_norm_(params, 1.0)
    assert float(norm) == pytest.approx(10 * before, rel=1e-5)
    for p, gradient in zip(params, expected):
        torch.testing.assert_close(p.grad, gradient / float(norm), rtol=1e-5, atol=0)
    optimizer.step()
    (step,) = watching.steps()
    assert step["clip_coefficient"] == pytest.approx(0.1 / before, rel=1e-4)
    assert step["grad_norm_at_step"] == pytest.approx(1.0, rel=1e-4)


def test_grad_norm_is_that_of_now_each_time_it_is_asked_for(watching):
    agent, model, _ = trained(watching)
    before = float(agent.grad_norm())
    for p in model.parameters():
        p.grad.data.mul_(3)
    assert float(agent.grad_norm()) == pytest.approx(3 * before, rel=1e-6)
    gradvane.clip_grad_norm_(model.parameters(), 0.5)
    assert float(agent.grad_norm()) == pytest.approx(0.5, rel=1e-5)


def test_what_went_bad_behind_the_version_counter_is_told_by_the_clip(watching):
    agent, model, optimizer = trained(watching)
    agent.grad_norm()
    model.weight.grad.data[1, 2] = float("nan")
    gradvane.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    (step,) = watching.steps()
    assert step["first_nonfinite"] == {"site": "grad", "kind": "nan", "param": "weight", "element": 8}


def test_a_clip_that_comes_first_reads_once(watching):
    """The read of the step and that of the clip are one: the agent's cost is not doubled."""
    agent, model, optimizer = trained(watching)
    asked = []
    clip = agent._native.clip_grad_norm

    class Native:
        def __getattr__(self, name):
            return getattr(agent_native, name)

        def clip_grad_norm(self, optimizer, max_norm, just_read):
            asked.append(just_read)
            return clip(optimizer, max_norm, just_read)

    agent_native, agent._native = agent._native, Native()
    gradvane.clip_grad_norm_(model.parameters(), 1.0)
    gradvane.clip_grad_norm_(model.parameters(), 1.0)
    agent._native = agent_native
    assert asked == [True, False]
    optimizer.step()
    assert len(watching.steps()) == 1


def test_the_time_of_a_clip_is_counted_as_the_agents_own(watching):
    """A sleep within the clip is at least as long as it claims, so this bound holds on any machine."""
    agent, model, optimizer = trained(watching)

    class Slow(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.__name__.startswith("_foreach_mul_"):
                time.sleep(0.25)
            return func(*args, **(kwargs or {}))

    with Slow():
        gradvane.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()
    (step,) = watching.steps()
    assert step["agent_seconds"] >= 0.25
