"""Two machines with two ranks each, made of namespaces on one: a network, processes, shared memory and a name of their
own, and a wire between them."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
import running

NETWORK = "10.213.7"


class Machine:
    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"gradvane{os.getpid()}-{number}"
        self.address = f"{NETWORK}.{number + 1}"
        self.wire = f"gv{os.getpid() % 100000}-{number}"

    def ip(self, *words: str) -> None:
        run("ip", "-n", self.name, *words)

    def start(self, source, folder, **extra: str) -> subprocess.Popen[str]:
        """Two ranks, as torchrun starts them; their folder is shared with the other machine."""
        ranks = "\n".join(
            f'RANK={2 * self.number + local} LOCAL_RANK={local} "$@" & started="$started $!"' for local in range(2))
        inside = (f"mount -t tmpfs shm /dev/shm && hostname machine{self.number}\n{ranks}\n"
                  "for one in $started; do wait $one || exit 1; done")
        env = running.environment(
            WORLD_SIZE="4", LOCAL_WORLD_SIZE="2", GROUP_RANK=str(self.number), MASTER_ADDR=f"{NETWORK}.1", MASTER_PORT="29511",
            TORCHELASTIC_RUN_ID="two-machines", TORCHELASTIC_RESTART_COUNT="0", GLOO_SOCKET_IFNAME=self.wire, TMPDIR=str(folder),
            GRADVANE_LINGER_SECONDS="0", **extra)
        env.pop("GRADVANE_PORT")
        return subprocess.Popen([*self.inside(), "sh", "-c", inside, "sh", sys.executable, str(source)], cwd=folder, env=env,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def inside(self) -> list[str]:
        return ["ip", "netns", "exec", self.name, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--uts"]


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture
def machines():
    if shutil.which("ip") is None:
        pytest.skip("there is no ip (iproute2)")
    both = [Machine(0), Machine(1)]
    try:
        try:
            for machine in both:
                run("ip", "netns", "add", machine.name)
            run("ip", "link", "add", both[0].wire, "netns", both[0].name, "type", "veth",
                "peer", both[1].wire, "netns", both[1].name)
            run(*both[0].inside(), "mount", "-t", "tmpfs", "shm", "/dev/shm")
        except subprocess.CalledProcessError:
            pytest.skip("this user may make no namespaces")
        for machine in both:
            machine.ip("addr", "add", f"{machine.address}/24", "dev", machine.wire)
            machine.ip("link", "set", machine.wire, "up")
            machine.ip("link", "set", "lo", "up")
        yield both
    finally:
        for machine in both:
            subprocess.run(["ip", "netns", "del", machine.name], capture_output=True)


def outputs(processes) -> list[str]:
    texts = []
    for process in processes:
        try:
            texts.append(process.communicate(timeout=120)[0])
        except subprocess.TimeoutExpired:
            process.kill()
            texts.append(process.communicate()[0] + "\nstill there after two minutes")
    return texts


BEGIN = """
    import datetime, json, os, sys, time, urllib.request
    import torch
    import torch.distributed as dist
    import gradvane
    dist.init_process_group("gloo")
    rank = dist.get_rank()
""" + running.KEEPS_LOG + """
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Linear(9, 3))
    torch.manual_seed(10 + rank)

    def say(**what):
        with open(f"rank{rank}.json", "w") as file:
            json.dump({"lines": lines, "incidents": [str(i) for i in agent.incidents], **what}, file)
"""
TOGETHER = BEGIN + """
    net = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    agent = gradvane.attach(model, optimizer, run="two-machines", ranks="agree", on_nonfinite="skip",
                            address=f"10.213.7.{rank // 2 + 1}", insecure=True)
    for i in range(10):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 6)).square().mean()
        if i == 6 and rank == 3:
            loss = loss * float("nan")
        loss.backward()
        optimizer.step()
    agent.flush()
    dist.barrier()

    def ranks_at(address):
        # Another rank may not have published its last step yet: its series come within a second or two.
        for _ in range(100):
            with urllib.request.urlopen(f"http://{address}:9464/metrics", timeout=10) as answer:
                text = answer.read().decode()
            found = sorted({line.split('rank="')[1][0] for line in text.splitlines() if line.startswith("gradvane_steps_total{")})
            agree = sorted(float(line.split()[-1]) for line in text.splitlines() if line.startswith("gradvane_ranks_agree{"))
            if len(found) == len(agree) == 2:
                break
            time.sleep(0.1)
        return "".join(found), agree

    def numbers_at(address):
        # The first look begins the questions to the other machine.
        for _ in range(200):
            with urllib.request.urlopen(f"http://{address}:9464/api/v1/ranks", timeout=10) as answer:
                found = [[one["rank"], one.get("answers"), one.get("run_step")] for one in json.load(answer)["ranks"]]
            if found == [[number, True, 10] for number in range(4)]:
                break
            time.sleep(0.1)
        return found

    seen = [ranks_at("10.213.7.1"), ranks_at("10.213.7.2")]
    numbers = numbers_at(f"10.213.7.{rank // 2 + 1}")
    dist.barrier()
    met = agent._watcher.agreement._meeting.place
    agent.detach()
    say(seen=seen, numbers=numbers, met=met, weights=sum(p.double().sum().item() for p in model.parameters()))
    dist.destroy_process_group()
"""


def told(folder, texts) -> list[dict]:
    files = [folder / f"rank{rank}.json" for rank in range(4)]
    assert all(file.exists() for file in files), "\n".join(texts)
    return [json.loads(file.read_text()) for file in files]


def test_ranks_of_two_machines_skip_the_same_step_and_each_machine_has_one_port(tmp_path, machines):
    source = running.write(tmp_path, TOGETHER)
    processes = [machine.start(source, tmp_path) for machine in machines]
    texts = outputs(processes)
    said = told(tmp_path, texts)
    assert [process.returncode for process in processes] == [0, 0], texts
    line = "step 7: skip on all ranks; rank 3 is the first whose own loss is not finite"
    for one in said:
        assert one["met"] == "nodes"
        assert line in one["lines"], one["lines"]
        assert one["seen"] == [["01", [1, 1]], ["23", [1, 1]]], "each machine's port has its own ranks"
        assert one["numbers"] == [[rank, True, 10] for rank in range(4)], "and its list has those of both"
    assert len({one["weights"] for one in said}) == 1


APART = BEGIN + """
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    agent = gradvane.attach(model, optimizer, run="two-machines", ranks="agree", on_nonfinite="skip", port=-1)
    agent._watcher.agreement._patience = datetime.timedelta(seconds=5)
    longest = 0.0
    for i in range(40):
        began = time.monotonic()
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
        longest = max(longest, time.monotonic() - began)
        if i == 10:
            open(f"ready{rank}", "w").close()
            while not os.path.exists("cut"):
                time.sleep(0.05)
    agent.flush()
    steps = agent.status().steps
    agent.detach()
    say(steps=steps, longest=longest)
    os._exit(0)  # without the others, whom the wire has taken
"""


def test_a_wire_that_is_cut_ends_the_agreement_and_not_the_training(tmp_path, machines):
    source = running.write(tmp_path, APART)
    processes = [machine.start(source, tmp_path) for machine in machines]
    until = time.monotonic() + 90
    while not all((tmp_path / f"ready{rank}").exists() for rank in range(4)) and time.monotonic() < until:
        time.sleep(0.1)
    machines[0].ip("link", "set", machines[0].wire, "down")
    (tmp_path / "cut").touch()
    texts = outputs(processes)
    for one in told(tmp_path, texts):
        assert one["steps"] == 40
        assert any("agreement_lost" in incident for incident in one["incidents"]), one
        assert one["longest"] < 30, "it waits once, for as long as it may"
