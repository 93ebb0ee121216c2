"""A gradient that has no finite element has no norm and no largest magnitude either: every output says that none is known,
and none says 0."""

from __future__ import annotations

import json
import math
import re
import urllib.request

import pytest
import torch
from small_net import net

STEPS, BROKEN = 6, (3, 4)
RUINED = "0.weight"


def read(agent, path):
    with urllib.request.urlopen(agent.url + path, timeout=20) as answer:
        return answer.read().decode()


def gauges(agent):
    """Of one optimizer, by name and group."""
    pattern = r'^gradvane_(grad_norm|grad_norm_at_step|grad_abs_max|group_grad_norm|group_grad_abs_max)\{([^}]*)\} (\S+)$'
    found = {}
    for name, labels, value in re.findall(pattern, read(agent, "/metrics"), re.MULTILINE):
        group = re.search(r'group="([^"]*)"', labels)
        found[name, group and group[1]] = float(value)
    return found


@pytest.mark.parametrize("how", ["every parameter", "one of them"])
def test_what_has_no_finite_element_has_no_norm_anywhere(watching, how):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    agent = watching(model, optimizer, port=0, mode="immediate", linger_seconds=0, linger_incident_seconds=0)
    norms, kept = [], {}
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        if step in BROKEN:
            for name, param in model.named_parameters():
                if how == "every parameter" or name == RUINED:
                    param.grad.fill_(math.nan if step == BROKEN[0] else math.inf)
        left = [g[g.isfinite()].double() for g in (p.grad for p in model.parameters())]
        norms.append(float(torch.cat(left).norm()) if any(map(len, left)) else None)
        weights = [p.detach().clone() for p in model.parameters()]
        optimizer.step()
        with torch.no_grad():  # as if nothing had been
            for param, weight in zip(model.parameters(), weights):
                param.copy_(weight)
        record = agent.last_step
        assert record.run_step == step
        for said in (record.grad_norm, record.grad_norm_at_step):
            assert (said is None) == (norms[-1] is None) and (said is None or math.isclose(said, norms[-1], rel_tol=1e-6))
        assert agent.flush(60)
        if step == BROKEN[0] - 1:
            kept = gauges(agent)
        if step in BROKEN:
            look(agent, kept, how)
    assert (None in norms) == (how == "every parameter")
    history = json.loads(read(agent, "/api/v1/history?resolution=steps"))
    for key in ("grad_norm", "grad_norm_at_step", "grad_abs_max"):
        assert [value is None for value in history["series"][key]["last"]] == [norm is None for norm in norms]
    bad = [step in BROKEN for step in range(1, STEPS + 1)]
    for of, name in (("groups", "0"), ("params", RUINED)):
        for value in ("grad_norm", "grad_abs_max"):
            grid = json.loads(read(agent, f"/api/v1/heatmap?rows={of}&value={value}"))
            cells = grid["values"][grid["names"].index(name)]
            is_all = of == "params" or how == "every parameter"
            assert [cell is None for cell in cells] == [is_all and one for one in bad]


def look(agent, kept, how):
    """While it is so."""
    now = gauges(agent)
    assert now.keys() == kept.keys() and 0 not in now.values()
    if how == "every parameter":
        assert now == kept, "a gauge keeps what it said last"
    params = json.loads(read(agent, "/api/v1/params"))["params"]
    for param in params:
        is_ruined = how == "every parameter" or param["name"] == RUINED
        assert ({"norm", "abs_max"} & param["grad"].keys() == set()) == is_ruined, param
    worst = [param["name"] for param in json.loads(read(agent, "/api/v1/params?sort=grad_norm"))["params"]]
    if how == "one of them":
        assert worst[-1] == RUINED, "what has no number comes last"


def test_weights_without_a_finite_element_have_no_norm(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    agent = watching(model, optimizer, port=0, weight_every=1, linger_seconds=0, linger_incident_seconds=0)
    for ruined in (False, True):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        if ruined:
            with torch.no_grad():
                for param in model.parameters():
                    param.fill_(math.nan)
        optimizer.step()
        assert agent.flush(60)
        said = float(re.search(r"^gradvane_weight_norm\{.*\} (\S+)$", read(agent, "/metrics"), re.MULTILINE)[1])
        if not ruined:
            before = said
        assert said == before > 0
    assert all("norm" not in param["weight"] for param in json.loads(read(agent, "/api/v1/params"))["params"])
    first, last = watching.steps()
    assert first["weight_norm"] == pytest.approx(before) and "weight_norm" not in last
