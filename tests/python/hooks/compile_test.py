"""torch.compile: no graph break and no recompilation because of us, counted by torch's own counters."""

import json

import pytest
import running

COMPILER = ("torch._dynamo", "torch._functorch.aot_autograd")

COMPILED = """
    import json, sys
    import torch
    import torch._dynamo
    from torch._dynamo.utils import counters

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
    {compile_model}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    {compile_step}
    for i in range(5):
        optimizer.zero_grad()
        loss = compiled(torch.randn(4, 8)).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        step()
    seen = {{kind: dict(counters[kind]) for kind in ("graph_break", "recompiles", "frames")}}
    seen["unique_graphs"] = counters["stats"]["unique_graphs"]
    print(json.dumps(seen))
    torch.save([p.detach() for p in model.parameters()], "weights.pt")
"""
WAYS = {
    "model": ("compiled = torch.compile(model, backend='aot_eager')", "step = optimizer.step"),
    "model, in place": ("model.compile(backend='aot_eager'); compiled = model", "step = optimizer.step"),
    "optimizer": ("compiled = model", "step = torch.compile(optimizer.step, backend='aot_eager')"),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_graph_break_no_recompilation_same_weights(tmp_path, way):
    import torch

    script = running.write(tmp_path, COMPILED.format(compile_model=WAYS[way][0], compile_step=WAYS[way][1]))
    plain = running.python(script, cwd=tmp_path, modules=COMPILER)
    before = torch.load(tmp_path / "weights.pt")
    steps, done = running.watched(script, cwd=tmp_path, modules=COMPILER)
    before_counts, counts = json.loads(plain.stdout), json.loads(done.stdout)
    for kind in ("graph_break", "recompiles", "unique_graphs"):
        assert counts[kind] == before_counts[kind], kind
    assert counts["frames"].get("total", 0) <= before_counts["frames"].get("total", 0)
    assert all(torch.equal(a, b) for a, b in zip(before, torch.load(tmp_path / "weights.pt")))
    if way == "optimizer":  # a compiled step() runs no hooks: after two, backward passes are counted
        assert "no optimizer's step can be seen" in done.stderr
        assert [s["step"] for s in steps] == [1, 2, 3]
    else:
        assert [s["step"] for s in steps] == [1, 2, 3, 4, 5]
    assert all(s["param_states"] == {"finite": 4} and s["clip_coefficient"] for s in steps)


def test_names_are_the_models_own(tmp_path):
    steps = running.run_source(tmp_path, """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
        compiled = torch.compile(model, backend="eager")
        optimizer = torch.optim.SGD(compiled.parameters(), 0.1)
        compiled(torch.ones(2, 8)).sum().backward()
        model[1].weight.grad[0, 1] = float("nan")
        optimizer.step()
        """, modules=COMPILER)
    assert steps[0]["first_nonfinite"]["param"] == "1.weight"


def test_inductor_training_is_watched_like_any_other(tmp_path):
    steps = running.run_source(tmp_path, """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        @torch.compile
        def loss_of(x):
            return model(x).square().mean()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(torch.randn(4, 8)).backward()
            optimizer.step()
        """, modules=COMPILER)
    assert [s["step"] for s in steps] == [1, 2, 3] and all(s["loss"] > 0 for s in steps)
