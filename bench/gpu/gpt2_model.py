"""GPT-2 as a plain module of torch, and its training on random tokens."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

PRECISIONS = {"parameters": "bf16 parameters and gradients", "autocast": "fp32 parameters and gradients, bf16 autocast"}
BATCHES = 4  # random ones, in turns


@dataclass(frozen=True)
class Size:
    name: str
    layers: int
    heads: int
    width: int
    vocabulary: int
    context: int


GPT2 = Size("gpt2_124m", 12, 12, 768, 50257, 1024)
SMALL = Size("small", 2, 2, 64, 512, 32)  # for a rehearsal


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.ln_1(x)).view(batch, length, 3, self.heads, width // self.heads).transpose(1, 3)
        query, key, value = parts.unbind(2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(size.vocabulary, size.width), nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.ln_f = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.head.weight = self.wte.weight
        for name, param in self.named_parameters():
            if param.dim() > 1:
                nn.init.normal_(param, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(param)

    def forward(self, words, targets):
        x = self.wte(words) + self.wpe.weight[:words.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Training:
    """Steps that read nothing back: without an agent no step makes the host wait."""

    def __init__(self, size, device, precision, sequence):
        torch.manual_seed(0)
        self.size, self.device, self.precision, self.sequence = size, device, precision, sequence
        self.model = GPT(size).to(device, torch.bfloat16 if precision == "parameters" else torch.float32)
        self.params = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.params, 1e-5, fused=device.type == "cuda")
        self.number = 0
        self.set_work(1, 1)

    def set_work(self, batch, micro_batches):
        """What one step does."""
        self.batch, self.micro_batches = batch, micro_batches
        self.tokens = torch.randint(0, self.size.vocabulary, (BATCHES, batch, self.sequence + 1), device=self.device)

    def step(self, check=None):
        """`check` looks at the parameters between the backward pass and the update, and says whether all is well."""
        self.optimizer.zero_grad()
        for _ in range(self.micro_batches):
            tokens = self.tokens[self.number % BATCHES]
            self.number += 1
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "autocast"):
                loss = self.model(tokens[:, :-1], tokens[:, 1:])
            (loss / self.micro_batches if self.micro_batches > 1 else loss).backward()
        if check is None or check(self.params):
            self.optimizer.step()

    def facts(self):
        return {"model": self.size.name, "parameters": sum(p.numel() for p in self.params),
                "tensors": len(self.params), "precision": PRECISIONS[self.precision], "sequence": self.sequence,
                "batch": self.batch, "micro_batches": self.micro_batches,
                "tokens_per_step": self.batch * self.micro_batches * self.sequence}


def calibrate(seconds_of, target, most, first=1):
    """(batch, micro-batches, seconds) of a step that takes about `target` seconds.

    The batch grows until the step takes that long. `most` bounds it, as does the device's memory; then there are
    several micro-batches. `seconds_of(batch, micro_batches)` measures, and raises OutOfMemoryError.
    """
    measured = {}

    def measure(batch):
        try:
            measured[batch] = seconds_of(batch, 1)
            return True
        except torch.OutOfMemoryError:
            return False

    batch = min(first, most)
    if not measure(batch):
        batch, most = 1, 1
        measured[1] = seconds_of(1, 1)
    while measured[batch] < 0.97 * target and batch < most:
        wanted = min(most, max(batch + 1, round(batch * target / measured[batch])))
        if measure(wanted):
            batch = wanted
        else:
            most = (batch + wanted) // 2  # it may fit; else this comes to an end at `batch`
    below = max((each for each in measured if measured[each] < target), default=batch)
    above = min((each for each in measured if measured[each] >= target), default=batch)
    if above - below > 1 and measured[above] > 1.05 * target:
        share = (target - measured[below]) / (measured[above] - measured[below])
        measure(min(above - 1, max(below + 1, round(below + share * (above - below)))))
    batch = min(measured, key=lambda each: abs(measured[each] - target))
    if measured[batch] > 0.97 * target or batch < most:  # as near as it gets with one micro-batch
        return batch, 1, measured[batch]
    # As many sequences as there may be, or fewer in one more micro-batch: whichever is nearer.
    whole = int(target / measured[batch])
    fewer = max(1, round(batch * target / ((whole + 1) * measured[batch])))
    works = [(batch, whole, measured[batch] if whole == 1 else seconds_of(batch, whole)),
             (fewer, whole + 1, seconds_of(fewer, whole + 1))]
    return min(works, key=lambda work: abs(work[2] - target))
