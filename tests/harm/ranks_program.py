"""Trainings of two ranks each, or three: the same processes, forked ones, do all of a list."""

import pythons
from program import TERMINATED, Place, Program

RANKS = """
def rank(number, port, told):
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(number), WORLD_SIZE=str(COUNT),
                      LOCAL_RANK=str(number))
    dist.init_process_group("gloo", rank=number, world_size=COUNT)
    try:
        for name, body in BODIES.items():
            weights = body(number)
            way.end_agent()
            if number == 0:
                told.put((name, weights))
            dist.barrier()
    finally:
        dist.destroy_process_group()

def trained_by_ranks():
    # by the name of the training; the same ranks do them all, because a start costs seconds
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = mp.get_context("fork").SimpleQueue()
    torch.multiprocessing.start_processes(rank, (port, told), nprocs=COUNT, start_method="fork")
    return dict(told.get() for _ in BODIES)

def all_numbers(model):
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([p.detach().flatten() for p in whole]).tolist()

def data_parallel(number, prepare=lambda net: None):
    model, optimizer = tiny.make()
    net = torch.nn.parallel.DistributedDataParallel(model)
    prepare(net)
    torch.manual_seed(number)
    way.attach(model, optimizer)
    tiny.train(net, optimizer, clip=torch.nn.utils.clip_grad_norm_)
    way.detach()
    tiny.train(net, optimizer, clip=torch.nn.utils.clip_grad_norm_)
    return all_numbers(model)

def half_watched(model, optimizer, clip):
    way.attach(model, optimizer)
    tiny.train(model, optimizer, 3, clip)
    way.detach()
    tiny.train(model, optimizer, 3, clip)
    return all_numbers(model)

def fully_sharded(clip):
    def train(number):
        from torch.distributed.fsdp import fully_shard
        model, optimizer = tiny.make()
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        torch.manual_seed(number)
        return half_watched(model, optimizer, clip)
    return train

def tensor_parallel(clip):
    def train(number):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 1))
        parallelize_module(model, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        return half_watched(model, optimizer, clip)
    return train

def by_hand(number):
    import torch.distributed as dist
    model, optimizer = tiny.make()
    torch.manual_seed(number)
    def steps():
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            if way.WAY.startswith("attach"):
                import gradvane
                gradvane._agent.live() and gradvane._agent.live().grad_norm()
            for p in model.parameters():
                dist.all_reduce(p.grad)
            way.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
    way.attach(model, optimizer)
    steps()
    way.detach()
    steps()
    return all_numbers(model)

BODIES = {
    "data parallel": data_parallel,
    "by hand": by_hand,
    "FSDP2, torch's clip": fully_sharded(torch.nn.utils.clip_grad_norm_),
    "FSDP2, our clip": fully_sharded(way.clip_grad_norm_),
    "tensors, torch's clip": tensor_parallel(torch.nn.utils.clip_grad_norm_),
    "tensors, our clip": tensor_parallel(way.clip_grad_norm_),
}
COUNT = 2
"""


def ranks(name: str, body: str, first: bool = False, within: float = 0.0) -> Program:
    """The first one trains them all."""
    begin = "trained = trained_by_ranks()\n" if first else ""
    return Program(name, f"_, optimizer = tiny.make()\n{begin}model = torch.tensor(trained[{body!r}])",
                   top=RANKS if first else "", whole=True, together="ranks", weights_within=within, modules=pythons.SHARDED,
                   crash_by_chance=TERMINATED)


_AGREE = {"GRADVANE_RANKS": "agree", "GRADVANE_ON_NONFINITE": "skip"}


def _functions() -> str:
    return RANKS[:RANKS.index("BODIES = {")]


def ranks_that_agree(name: str) -> Program:
    """With a process group of the agent's own, in forked processes; the second model has a hook of the program's."""
    return Program(name, """
        _, optimizer = tiny.make()
        trained = trained_by_ranks()
        model = torch.tensor(trained["agree"] + trained["own hook"])
        """, top=_functions() + """
def own_hook(number):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    return data_parallel(number, lambda net: net.register_comm_hook(None, allreduce_hook))

BODIES = {"agree": data_parallel, "own hook": own_hook}
COUNT = 2
""", whole=True, modules=pythons.SHARDED, crash_by_chance=TERMINATED, place=Place(environment={
        **_AGREE, "GRADVANE_CHECK_BEFORE_REDUCTION": "on", "GRADVANE_COMPARE_REPLICAS_EVERY": "2"}))


def ranks_of_two_machines_that_agree(name: str) -> Program:
    """The third one says that it is elsewhere: shared memory and a process group between the first of each."""
    return Program(name, """
        _, optimizer = tiny.make()
        model = torch.tensor(trained_by_ranks()["apart"])
        """, top=_functions() + """
def apart(number):
    if way.WAY != "plain":
        from gradvane import _native
        _native.this_node = lambda: "there" if number == 2 else "here"
    return data_parallel(number)

BODIES = {"apart": apart}
COUNT = 3
""", whole=True, modules=pythons.SHARDED, crash_by_chance=TERMINATED, place=Place(environment=_AGREE))
