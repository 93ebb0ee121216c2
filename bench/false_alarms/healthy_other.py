"""Healthy runs on everything else: images, regression, games, and losses that are noisy, rise or lie below zero."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from training import Run


def images(size: int) -> tuple[Tensor, Tensor]:
    """Ten classes: a bright spot, whose place is the class, in noise."""
    targets = torch.randint(10, (size,))
    pictures = torch.randn(size, 3, 16, 16)
    for picture, target in zip(pictures, targets.tolist(), strict=True):
        row, column = divmod(target, 5)
        picture[:, 8 * row:8 * row + 4, 3 * column:3 * column + 3] += 1.5
    return pictures, targets


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                    nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.layers(x))


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), Residual(16), nn.MaxPool2d(2), Residual(16),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))


def residual_network_sgd_steps_of_the_rate(run: Run) -> None:
    model = convolutional()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [run.steps // 2, 3 * run.steps // 4])
    run.watch(model, optimizer, random_guess_loss=2.302585)
    for _ in run:
        pictures, targets = images(16)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures), targets).backward()
        optimizer.step()
        schedule.step()


def regression_down_to_nothing(run: Run) -> None:
    """The loss falls by orders of magnitude, and the gradients with it."""
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
    inputs = torch.randn(256, 8)
    targets = inputs.sum(1, keepdim=True).sin()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    run.watch(model, optimizer)
    for _ in run:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def heavy_tailed_targets(run: Run) -> None:
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    noise = torch.distributions.StudentT(torch.tensor(3.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run.watch(model, optimizer)
    for _ in run:
        inputs = torch.randn(32, 8)
        targets = inputs.sum(1, keepdim=True) + noise.sample((32, 1))
        optimizer.zero_grad()
        nn.functional.huber_loss(model(inputs), targets).backward()
        optimizer.step()


def adversaries(run: Run) -> None:
    """Two optimizers whose losses pull against each other."""
    generator = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    optimizers = [torch.optim.Adam(part.parameters(), lr=5e-4, betas=(0.5, 0.9)) for part in (generator, critic)]
    run.watch(nn.ModuleDict({"generator": generator, "critic": critic}), optimizers)
    bce = nn.functional.binary_cross_entropy_with_logits
    for _ in run:
        angle = torch.rand(64) * 6.283
        real = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(64, 2)
        false = generator(torch.randn(64, 4))
        optimizers[1].zero_grad()
        (bce(critic(real), torch.ones(64, 1)) + bce(critic(false.detach()), torch.zeros(64, 1))).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        bce(critic(false), torch.ones(64, 1)).backward()
        optimizers[0].step()


def policy_gradient(run: Run) -> None:
    """A loss around zero, of either sign, as noisy as its estimate."""
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    run.watch(model, optimizer)
    for _ in run:
        states = torch.randn(32, 4)
        policy = torch.distributions.Categorical(logits=model(states))
        actions = policy.sample()
        rewards = (actions == states[:, :3].argmax(1)).float() + 0.3 * torch.randn(32)
        optimizer.zero_grad()
        (-(policy.log_prob(actions) * (rewards - rewards.mean())).mean() - 0.01 * policy.entropy().mean()).backward()
        optimizer.step()


def likelihood_below_zero(run: Run) -> None:
    """A density's negative logarithm, which goes on below zero; the weight of the second term rises."""
    encoder, decoder = nn.Linear(16, 8), nn.Linear(4, 32)
    model = nn.ModuleList([encoder, decoder])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    basis = torch.randn(2, 16)
    run.watch(model, optimizer)
    for i in run:
        data = torch.randn(64, 2) @ basis * 0.3 + 0.02 * torch.randn(64, 16)
        mean, logarithm = encoder(data).chunk(2, 1)
        code = mean + (logarithm / 2).exp() * torch.randn_like(mean)
        center, width = decoder(code).chunk(2, 1)
        density = -torch.distributions.Normal(center, nn.functional.softplus(width) + 0.01).log_prob(data).sum(1).mean()
        divergence = 0.5 * (mean.square() + logarithm.exp() - 1 - logarithm).sum(1).mean()
        optimizer.zero_grad()
        (density + min(1, i / (run.steps / 3)) * divergence).backward()
        optimizer.step()


def experts_that_rest(run: Run) -> None:
    """Some parameters get no gradient in most steps."""
    experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)) for _ in range(6))
    optimizer = torch.optim.Adam(experts.parameters(), lr=2e-3)
    run.watch(experts, optimizer)
    for i in run:
        inputs = torch.randn(32, 8)
        optimizer.zero_grad()
        nn.functional.mse_loss(experts[i % 6](inputs), inputs.square().sum(1, keepdim=True)).backward()
        optimizer.step()


RUNS = [residual_network_sgd_steps_of_the_rate, regression_down_to_nothing, heavy_tailed_targets, adversaries,
        policy_gradient, likelihood_below_zero, experts_that_rest]
