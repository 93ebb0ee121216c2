"""A transformer with parameter groups, gradient accumulation and clipping."""
import math

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

torch.manual_seed(4)
VOCABULARY, WIDTH, CONTEXT = 40, 24, 12
ACCUMULATE, GRAD_CLIP, MAX_STEPS = 4, 1.0, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        h = self.ln_1(x)
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(2))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def get_lr(it):
    return 1e-3 * min(1.0, (it + 1) / 4) * (0.5 + 0.5 * math.cos(math.pi * it / MAX_STEPS))


model = GPT()
decay = [p for p in model.parameters() if p.dim() >= 2]
no_decay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}], lr=1e-3
)
data = torch.randint(0, VOCABULARY, (2000,))

for it in range(MAX_STEPS):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    for micro_step in range(ACCUMULATE):
        start = torch.randint(0, len(data) - CONTEXT - 1, (6,))
        x = torch.stack([data[s : s + CONTEXT] for s in start])
        y = torch.stack([data[s + 1 : s + 1 + CONTEXT] for s in start])
        loss = model(x, y) / ACCUMULATE
        loss.backward()
    clip_grad_norm_(model.parameters(), GRAD_CLIP)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {it}: loss {loss.item() * ACCUMULATE:.4f}")

torch.save(model.state_dict(), "weights.pt")
