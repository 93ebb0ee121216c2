"""Clipping as scripts do it, seen on entry: the norm before, the norm after, the coefficient, and blame."""

import pytest
import torch
from conftest import reference_norm
from torch.nn.utils import clip_grad_norm_, clip_grad_value_  # by name, before anybody watches

import gradvane


def trained(watching, clip, *, steps=3, **options):
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    watching(model, optimizer, **options)
    norms = []
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        before = reference_norm(model.parameters())
        clip(model, optimizer)
        norms.append((before, reference_norm(model.parameters())))
        optimizer.step()
    return watching.steps(), norms


def expect(steps, norms, *, read_at="clip", coefficient=True):
    assert len(steps) == len(norms)
    for step, (before, after) in zip(steps, norms):
        assert step["read_at"] == read_at
        assert step["grad_norm"] == pytest.approx(before, rel=1e-6)
        assert step["grad_norm_at_step"] == pytest.approx(after, rel=1e-5)
        if coefficient:
            assert step["clip_coefficient"] == pytest.approx(after / before, rel=1e-5)
        else:
            assert "clip_coefficient" not in step


def test_a_clip_function_imported_by_name_before_attach_is_seen(watching):
    expect(*trained(watching, lambda model, _: clip_grad_norm_(model.parameters(), 0.05)))


def test_a_clip_through_the_module_is_seen(watching):
    expect(*trained(watching, lambda model, _: torch.nn.utils.clip_grad_norm_(list(model.parameters()), 0.05)))


def test_the_norm_that_clip_returns_is_torchs_own(watching):
    returned = []
    _, norms = trained(watching, lambda model, _: returned.append(float(clip_grad_norm_(model.parameters(), 0.05))))
    assert returned == pytest.approx([before for before, _ in norms], rel=1e-6)


def test_clipping_by_value_is_seen_and_has_no_coefficient(watching):
    expect(*trained(watching, lambda model, _: clip_grad_value_(model.parameters(), 0.01)), coefficient=False)


def test_an_infinity_norm_has_no_coefficient_of_ours(watching):
    clip = lambda model, _: clip_grad_norm_(model.parameters(), 0.01, norm_type=float("inf"))  # noqa: E731
    expect(*trained(watching, clip), coefficient=False)


def test_clipping_a_part_of_the_model_leaves_the_coefficient_out(watching):
    expect(*trained(watching, lambda model, _: clip_grad_norm_(model[0].parameters(), 0.01)), coefficient=False)


def test_clipping_twice_leaves_the_coefficient_out(watching):
    def clip(model, _):
        clip_grad_norm_(model.parameters(), 0.05)
        clip_grad_norm_(model.parameters(), 0.02)

    expect(*trained(watching, clip), coefficient=False)


def test_norm_and_clip_in_two_calls_are_one_clip(watching):
    def clip(model, _):
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.05, norm)

    expect(*trained(watching, clip))


def test_clipping_by_hand_cannot_be_seen_on_entry_but_its_outcome_can(watching):
    def clip(model, _):
        for p in model.parameters():
            p.grad.mul_(0.5)

    steps, norms = trained(watching, clip)
    for step, (_, after) in zip(steps, norms):
        assert step["read_at"] == "optimizer"
        assert step["grad_norm"] == pytest.approx(after, rel=1e-6)


def test_one_nan_is_blamed_although_clipping_makes_every_gradient_nan(watching):
    def clip(model, _):
        model[2].weight.grad[0, 5] = float("nan")
        clip_grad_norm_(model.parameters(), 1.0)
        assert all(p.grad.isnan().all() for p in model.parameters())

    steps, _ = trained(watching, clip, steps=1)
    assert steps[0]["first_nonfinite"] == {"site": "grad", "kind": "nan", "param": "2.weight", "element": 5}
    assert steps[0]["nonfinite"]["grad"] == {"nan": 1, "pos_inf": 0, "neg_inf": 0}


def test_a_gradient_that_goes_bad_between_the_clip_and_the_step_is_blamed(watching):
    def clip(model, _):
        clip_grad_norm_(model.parameters(), 1.0)
        model[0].bias.grad[3] = float("-inf")

    steps, _ = trained(watching, clip, steps=1)
    assert steps[0]["first_nonfinite"]["param"] == "0.bias"


def test_error_if_nonfinite_still_raises_and_the_blame_is_kept(watching):
    def clip(model, _):
        model[0].weight.grad[1, 1] = float("inf")
        clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)

    with pytest.raises(RuntimeError, match="non-finite"):
        trained(watching, clip, steps=1)
    steps = watching.steps()
    assert steps[-1]["first_nonfinite"] == {"site": "grad", "kind": "pos_inf", "param": "0.weight", "element": 7}
    assert steps[-1]["skipped"] == "loop"


def test_a_loop_that_skips_bad_steps_by_itself_is_told_of_as_such(watching):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    for i in range(4):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        if i == 1:
            model.weight.grad[0, 2] = float("nan")
        if clip_grad_norm_(model.parameters(), 1.0).isfinite():
            optimizer.step()
    steps = watching.steps()
    assert [(s["step"], s.get("skipped")) for s in steps] == [(1, None), (2, "loop"), (2, None), (3, None)]
    assert steps[1]["first_nonfinite"]["param"] == "weight"


def test_our_own_clip_gives_the_same_norm_and_nearly_the_same_gradients(watching):
    def clip(model, _):
        copies = [p.grad.clone() for p in model.parameters()]
        expected = float(torch.nn.utils.get_total_norm(copies))
        ours = gradvane.clip_grad_norm_(model.parameters(), 0.05)
        assert ours.dtype == torch.float32 and float(ours) == pytest.approx(expected, rel=1e-6)
        for copy, p in zip(copies, model.parameters()):
            torch.testing.assert_close(p.grad, copy * min(1.0, 0.05 / (expected + 1e-6)))

    steps, norms = trained(watching, clip)
    expect(steps, norms)


def test_our_own_clip_without_an_agent_is_torchs():
    p = torch.nn.Parameter(torch.ones(4))
    p.grad = torch.full((4,), 3.0)
    assert float(gradvane.clip_grad_norm_([p], 1.0)) == pytest.approx(6.0)
    assert p.grad.norm() == pytest.approx(1.0, rel=1e-5)


def test_grad_norm_is_the_norm_of_the_step_without_a_second_read(watching):
    model = torch.nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = watching(model, optimizer)
    model(torch.randn(3, 5)).sum().backward()
    norm = agent.grad_norm()
    assert float(norm) == pytest.approx(reference_norm(model.parameters()), rel=1e-7)
    optimizer.step()
    assert watching.steps()[0]["grad_norm"] == pytest.approx(float(norm), rel=1e-12)


def test_an_empty_generator_still_gets_torchs_warning(watching):
    model = torch.nn.Linear(5, 2)
    watching(model, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.warns(UserWarning, match="empty generator"):
        clip_grad_norm_((p for p in ()), 1.0)


def test_detach_leaves_torchs_functions_as_they_were(watching):
    from torch.nn.utils import clip_grad

    def seen():
        return [torch.autograd.backward, torch.amp.GradScaler.step, torch.amp.GradScaler.scale,
                *(cell.cell_contents for cell in clip_grad.clip_grad_norm_.__closure__),
                *(cell.cell_contents for cell in clip_grad.clip_grad_value_.__closure__)]

    before = seen()
    model = torch.nn.Linear(5, 2)
    agent = watching(model, torch.optim.SGD(model.parameters(), 0.1))
    assert seen() != before
    agent.detach()
    assert seen() == before
