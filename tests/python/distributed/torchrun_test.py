"""torchrun itself: four ranks that agree, a rank that fails, and the ranks that torchrun starts in its place."""

import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import running

RANKS = 4
TRAIN = """
    import os, sys, time
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    # torchrun's store outlives the ranks that failed: gloo of torch 2.11 would find their addresses there.
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    dist.init_process_group("gloo", store=dist.PrefixStore(f"attempt{attempt}", store), rank=rank, world_size=4)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    net = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    torch.manual_seed(rank)
    left_out = []
    for i in range(8):
        if attempt == 0 and rank == 2 and i == 4:
            sys.exit(7)
        optimizer.zero_grad()
        loss = net(torch.randn(3, 4)).square().mean()
        if rank == 3 and i == 5:
            loss = loss + torch.tensor(float("nan"))  # its gradient is fine: nobody else can see it
        loss.backward()
        before = model[0].weight.detach().clone()
        optimizer.step()
        if torch.equal(before, model[0].weight):
            left_out.append(i)
    with open(f"rank{rank}.attempt{attempt}", "w") as file:
        file.write(str(left_out))
    while not os.path.exists("seen"):
        time.sleep(0.05)
    dist.barrier()
    dist.destroy_process_group()
"""


def of_all(folder: Path, seconds: float) -> list[str]:
    """What each rank of the second attempt left out."""
    files = [folder / f"rank{rank}.attempt1" for rank in range(RANKS)]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError):
            if all(texts := [file.read_text() for file in files]):
                return texts
        time.sleep(0.1)
    raise AssertionError(f"no second attempt in {sorted(path.name for path in folder.iterdir())}")


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def test_after_a_restart_four_ranks_have_one_address_agree_and_are_known_as_the_second_attempt(tmp_path):
    script = running.write(tmp_path, TRAIN)
    with open(tmp_path / "said", "w") as said, subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--standalone", "--max-restarts", "1",
             "-m", "gradvane", "run", "--on-nonfinite", "skip", "--ranks", "agree", "--linger-seconds", "0", str(script)],
            cwd=tmp_path, stdout=said, stderr=said, env=running.environment(TMPDIR=str(tmp_path))) as torchrun:
        try:
            assert of_all(tmp_path, 180) == ["[5]"] * RANKS, (tmp_path / "said").read_text()
            runs = json.loads(running.python("-m", "gradvane", "ls", "--json", cwd=tmp_path, TMPDIR=str(tmp_path)).stdout)
            assert [run["rank"] for run in runs] == [0, 1, 2, 3]
            (url,) = {run["url"].split("/rank/")[0] for run in runs}
            ranks = json.loads(read(f"{url}/api/v1/ranks"))["ranks"]
            assert [(rank["rank"], rank["answers"], rank["steps"]) for rank in ranks] == [(rank, True, 8) for rank in range(RANKS)]
            info = [line for line in read(f"{url}/metrics").splitlines() if line.startswith("gradvane_run_info{")]
            assert len(info) == RANKS and all("-restart1" in line for line in info), info
            (tmp_path / "seen").touch()
            assert torchrun.wait(60) == 0
        finally:
            torchrun.kill()
    text = (tmp_path / "said").read_text()
    assert text.count("step 6: skip on all ranks; rank 3 is the first whose own loss is not finite") == RANKS, text
