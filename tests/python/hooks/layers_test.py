"""The layers of a deep model are shown one by one, in their order."""

import logging
import re
import urllib.request

import pytest
import torch


class Deep(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(2, 2)
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
                                          for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = x + layer(x)
        return x


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(1, 2)).square().mean().backward()
    optimizer.step()


def published(agent) -> list[str]:
    """Groups with a gradient norm in /metrics."""
    assert agent.flush()
    with urllib.request.urlopen(f"{agent.url}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    assert re.search(r"^gradvane_grad_norm\{", metrics, re.MULTILINE)
    return re.findall(r'^gradvane_group_grad_norm\{[^}]*\bgroup="([^"]+)"', metrics, re.MULTILINE)


@pytest.mark.parametrize(("option", "rank", "local_rank", "ranks", "has_groups"), [
    ("all", 9, 1, 5000, True), ("local0", 8, 0, 16, True), ("local0", 9, 1, 16, False), ("rank0", 0, 0, 16, True),
    ("rank0", 8, 0, 16, False), ("auto", 9, 1, 16, True), ("auto", 9, 1, 5000, False), ("auto", 0, 0, 5000, True),
])
def test_replicas_may_leave_the_gauges_of_groups_to_one_rank(watching, option, rank, local_rank, ranks, has_groups):
    """By itself, if all ranks together would have more than 50,000 series of groups."""
    model = Deep(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    agent = watching(model, optimizer, port=0, group_series=option, rank=rank, local_rank=local_rank, world_size=ranks)
    train(model, optimizer)
    assert len(published(agent)) == (4 if has_groups else 0)


@pytest.mark.parametrize(("layers", "names"), [
    (80, [f"layers.{i:02}" for i in range(80)]),
    (300, [f"layers.{i:03}-{i + 2:03}" for i in range(0, 300, 3)]),
])
def test_layers_are_groups_whose_names_sort_in_their_order_and_a_line_says_if_they_are_joined(
        watching, caplog, layers, names):
    caplog.set_level(logging.INFO, logger="gradvane")
    model = Deep(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    agent = watching(model, optimizer, port=0)
    train(model, optimizer)
    assert sorted(published(agent)) == ["embed", *names]
    watching.steps()
    said = [record.message for record in caplog.records if "layers are shown" in record.message]
    assert said == ([] if layers == 80 else ["300 layers are shown in groups of 3, because max_groups is 150"])
