"""A small transformer that times its own steps: run plainly and under `gradvane run`, in turns.

It writes a line for each step, seconds, to the file it is given, then a checksum of its weights.
"""

import sys
import time

import torch
from torch import nn

WIDTH, CONTEXT, WORDS, BATCH = 128, 64, 96, 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, dropout=0.1, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        return self.head(self.layers(self.embed(words)))


def main(times, steps):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    words = torch.randint(0, WORDS, (64, BATCH, CONTEXT))
    with open(times, "w") as out:
        for step in range(steps):
            start = time.perf_counter()
            batch = words[step % len(words)]
            loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            out.write(f"{time.perf_counter() - start}\n")
        total = sum(float(p.double().sum()) for p in model.parameters())
        out.write(f"{total!r}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
