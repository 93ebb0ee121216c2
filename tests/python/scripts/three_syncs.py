"""A small training on a GPU with three host syncs a step: one plain, one hidden, one that should be none.

Kernels that only take time stand before each, so that the first costs most and the last least.
"""
import torch
import torch.nn as nn

STEPS = 12
MILLISECOND = 1_500_000  # cycles of the GPU, about

torch.manual_seed(0)
device = torch.device("cuda")
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(1 << 16, 256)  # 64 MB of pageable memory


def keep_the_gpu_busy(milliseconds):
    torch.cuda._sleep(milliseconds * MILLISECOND)


def is_unstable(x):
    if x.abs().max() > 1e6:  # sync 2
        return True
    return False


for _ in range(STEPS):
    keep_the_gpu_busy(5)
    x = batch.to("cuda", non_blocking=True)  # sync 3
    optimizer.zero_grad()
    loss = model(x).square().mean()
    keep_the_gpu_busy(60)
    is_unstable(loss)
    loss.backward()
    optimizer.step()
    keep_the_gpu_busy(180)
    loss.item()  # sync 1
