"""A small GPT on two processes: torchrun --nproc-per-node 2 gpt_ddp.py. It learns Python from Python's own library."""

import inspect
import textwrap

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradvane

TEXT = torch.tensor(list(inspect.getsource(textwrap).encode()))
CONTEXT = 64


class GPT(nn.Module):
    def __init__(self, width=64, layers=4):
        super().__init__()
        self.token = nn.Embedding(256, width)
        self.position = nn.Embedding(CONTEXT, width)
        layer = {"nhead": 4, "dim_feedforward": 4 * width, "dropout": 0.0, "batch_first": True, "norm_first": True}
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, **layer) for _ in range(layers))
        self.head = nn.Linear(width, 256)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(x)


def main(steps=100):
    dist.init_process_group("gloo")  # "nccl" on GPUs
    torch.manual_seed(0)
    model = DistributedDataParallel(GPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(dist.get_rank())

    with gradvane.attach(model, optimizer, run="gpt-ddp"):
        for _ in range(steps):
            starts = torch.randint(len(TEXT) - CONTEXT - 1, (8,), generator=draws)
            rows = torch.stack([TEXT[i : i + CONTEXT + 1] for i in starts.tolist()])
            logits = model(rows[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            gradvane.count(tokens=rows[:, 1:].numel())
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
