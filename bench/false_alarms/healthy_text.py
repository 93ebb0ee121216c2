"""Healthy runs on text: the repository's own documents, by characters."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn
from training import Run

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = 32


def corpus() -> tuple[Tensor, int]:
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    characters = sorted(set(text))
    index = {character: i for i, character in enumerate(characters)}
    return torch.tensor([index[character] for character in text]), len(characters)


DATA, VOCABULARY = corpus()


def batch(size: int) -> tuple[Tensor, Tensor]:
    starts = torch.randint(len(DATA) - CONTEXT - 1, (size,))
    windows = torch.stack([DATA[start:start + CONTEXT + 1] for start in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]


class Transformer(nn.Module):
    def __init__(self, width: int = 48, layers: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(torch.zeros(CONTEXT, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.tokens(tokens) + self.places, mask=self.mask, is_causal=True))


class Recurrent(nn.Module):
    def __init__(self, width: int = 64, sparse: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width, sparse=sparse)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.tokens(tokens))[0])


def text_loss(model: nn.Module, size: int) -> Tensor:
    inputs, targets = batch(size)
    return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def transformer_adamw_warm_up_cosine(run: Run) -> None:
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min(1, (i + 1) / 200) * (0.55 + 0.45 * math.cos(math.pi * i / run.steps)))
    run.watch(model, optimizer, random_guess_loss=math.log(VOCABULARY))
    for _ in run:
        optimizer.zero_grad()
        text_loss(model, 16).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def transformer_sgd_warm_restarts(run: Run) -> None:
    model = Transformer(dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 300, T_mult=2)
    run.watch(model, optimizer)
    for _ in run:
        optimizer.zero_grad()
        text_loss(model, 16).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def lstm_adam_tiny_batches(run: Run) -> None:
    model = Recurrent()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    run.watch(model, optimizer)
    for _ in run:
        optimizer.zero_grad()
        text_loss(model, 1).backward()
        optimizer.step()


def lstm_sparse_embedding_two_optimizers(run: Run) -> None:
    model = Recurrent(sparse=True)
    rest = [p for name, p in model.named_parameters() if not name.startswith("tokens")]
    optimizers = [torch.optim.SparseAdam(model.tokens.parameters(), lr=1e-3), torch.optim.RMSprop(rest, lr=1e-3)]
    run.watch(model, optimizers)
    for _ in run:
        for optimizer in optimizers:
            optimizer.zero_grad()
        text_loss(model, 8).backward()
        for optimizer in optimizers:
            optimizer.step()


def accumulation_and_a_frozen_half(run: Run) -> None:
    model = Transformer()
    for p in model.layers.layers[0].parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.NAdam((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    run.watch(model, optimizer)
    for _ in run:
        optimizer.zero_grad()
        for _ in range(4):
            (text_loss(model, 4) / 4).backward()
        optimizer.step()


def scaler_from_a_scale_that_is_too_high(run: Run) -> None:
    model = Transformer(dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 124, growth_interval=150)
    run.watch(model, optimizer)
    for _ in run:
        optimizer.zero_grad()
        scaler.scale(text_loss(model, 8)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


RUNS = [transformer_adamw_warm_up_cosine, transformer_sgd_warm_restarts, lstm_adam_tiny_batches,
        lstm_sparse_embedding_two_optimizers, accumulation_and_a_frozen_half, scaler_from_a_scale_that_is_too_high]
