"""Sharded parameters: torchrun --nproc-per-node 2 fsdp2.py. The gradient norm is that of all shards."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gradvane


def main(steps=100):
    dist.init_process_group("gloo")  # "nccl" on GPUs
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))  # "cuda" on GPUs
    layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)]
    model = nn.Sequential(nn.Linear(8, 64), *layers, nn.Linear(64, 1))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(dist.get_rank())

    with gradvane.attach(model, optimizer, run="fsdp2"):
        for _ in range(steps):
            x = torch.randn(32, 8, generator=draws)
            loss = nn.functional.mse_loss(model(x), x.prod(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        dist.barrier()  # rank 0 keeps the store in which the ranks exchange their norms
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
