"""A plain loop: python plain_loop.py, then open the address that it prints."""

import torch

import gradvane


def batch(size=64):
    x = torch.rand(size, 2) * 4 - 2
    return x, (x[:, :1] * x[:, 1:]).sin()


def main(steps=500):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    gradvane.attach(model, optimizer, run="plain-loop", step_log="steps.jsonl")
    for _ in range(steps):
        x, y = batch()
        prediction = model(x)
        loss = torch.nn.functional.mse_loss(prediction, y)
        optimizer.zero_grad()
        loss.backward()
        gradvane.clip_grad_norm_(model.parameters(), 1.0)
        gradvane.log(worst_error=(prediction - y).abs().max())
        gradvane.count(samples=len(x))
        optimizer.step()
    gradvane.finish()


if __name__ == "__main__":
    main()
