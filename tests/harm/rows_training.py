"""Trainings of many kinds: the same bits come out of them."""

from program import Place, Program
from ranks_program import ranks, ranks_of_two_machines_that_agree, ranks_that_agree


def train(name: str, body: str, top: str = "", within: float = 0.0) -> Program:
    return Program(name, body, top=top, whole=True, together="trainings" if not within else "trainings, our clip",
                   weights_within=within)


WATCHED = """
way.attach(model, optimizer)
tiny.train(model, optimizer)
way.detach()
tiny.train(model, optimizer)
"""


def watched(make: str) -> str:
    return make + WATCHED


def scaled(made_with: str, before_step: str = "") -> str:
    """A training in mixed precision, with an overflow. `made_with`: arguments of tiny.make()."""
    return f"""
model, optimizer = tiny.make({made_with})
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=4)
def steps(n):
    for i in range(n):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.randn(8, 4)).square().mean()
        scaler.scale(loss).backward()
        if i == 1:
            model[0].weight.grad[0, 0] = float("inf"){before_step}
        scaler.step(optimizer)
        scaler.update()
way.attach(model, optimizer)
steps(5)
way.detach()
steps(5)
print(scaler.state_dict())
"""


POLICIES = Place(environment={"GRADVANE_ON_NONFINITE": "skip", "GRADVANE_ON_DIVERGENCE": "stop",
                              "GRADVANE_SKIP_NORM": "1e9"})

SCALER_TAKES_OURS = Place(environment={"GRADVANE_FOUND_INF_FOR_SCALER": "on"})

SKIPS_ON_A_DEVICE = Place(environment={"GRADVANE_ON_NONFINITE": "skip", "GRADVANE_SKIP_ON_DEVICE": "on"})

NAN_GRADIENTS = """
model, optimizer = tiny.make()
def steps(n):
    for _ in range(n):
        optimizer.zero_grad()
        (model(torch.randn(8, 4)) * float("nan")).mean().backward()
        optimizer.step()
way.attach(model, optimizer)
steps(3)
way.detach()
steps(3)
"""
A_RECORDING_STAYS = {"the run directory": "the recording of its incident stays"}

PROGRAMS = [
    train("SGD with momentum", watched("model, optimizer = tiny.make(momentum=0.9)")),
    train("AdamW, fused", watched("model, optimizer = tiny.make(optimizer=torch.optim.AdamW, fused=True)")),
    train("parameters of several types", watched("""
model, _ = tiny.make()
model[0].double()
model.register_forward_pre_hook(lambda _, inputs: (inputs[0].double(),))
model[1].register_forward_hook(lambda _, inputs, output: output.float())
optimizer = torch.optim.SGD(model.parameters(), 0.05)
""")),
    train("a LoRA-like model, mostly frozen", watched("""
torch.manual_seed(0)
class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(4, 1).requires_grad_(False)
        self.down = torch.nn.Linear(4, 2, bias=False)
        self.up = torch.nn.Linear(2, 1, bias=False)
        self.never = torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.base(x) + self.up(self.down(x))
model = Adapted()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
""")),
    train("mixed precision with a scaler that skips", scaled("", """
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)""")),
    Program("a gradient scaler of a fused optimizer that takes what our read has found",
            scaled("optimizer=torch.optim.AdamW, fused=True"), whole=True, place=SCALER_TAKES_OURS),
    Program("policies that find nothing to skip", watched("""
model, optimizer = tiny.make(optimizer=torch.optim.AdamW)
"""), whole=True, place=POLICIES),
    Program("a fused optimizer that may leave out bad steps by itself", watched("""
model, optimizer = tiny.make(optimizer=torch.optim.AdamW, fused=True)
"""), whole=True, place=SKIPS_ON_A_DEVICE),
    Program("policies, and a closure that is evaluated before the step", """
model, optimizer = tiny.make(optimizer=torch.optim.LBFGS, lr=0.1)
x = torch.randn(8, 4)
def closure():
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    return loss
way.attach(model, optimizer)
for _ in range(3):
    print(optimizer.step(closure).item())
way.detach()
print(optimizer.step(closure).item())
""", whole=True, place=POLICIES),
    train("LBFGS with a closure, and accumulation", """
model, optimizer = tiny.make(optimizer=torch.optim.LBFGS, lr=0.1)
x = torch.randn(8, 4)
model.eval()
def closure():
    optimizer.zero_grad()
    for part in x.chunk(2):
        loss = model(part).square().mean() / 2
        loss.backward()
    return loss
way.attach(model, optimizer)
print(optimizer.step(closure).item())
way.detach()
print(optimizer.step(closure).item())
"""),
    train("a GAN with two optimizers", """
model, optimizer = tiny.make()
critic, second = tiny.make(seed=1)
def rounds(n):
    for _ in range(n):
        tiny.step(model, optimizer)
        tiny.step(critic, second)
way.attach(torch.nn.ModuleList([model, critic]), [optimizer, second])
rounds(3)
way.detach()
rounds(3)
print(witness.numbers(critic))
"""),
    train("loaders that shuffle and fail, evaluations and checkpoints, marked and unmarked", """
import hashlib, io, shutil
from torch.utils.data import DataLoader, TensorDataset
import torch.distributed.checkpoint as dcp
model, optimizer = tiny.make()
data = TensorDataset(torch.randn(24, 4))
class Torn(TensorDataset):
    def __getitem__(self, index):
        raise OSError(f"sample {index} is gone")
def rounds(n, folder):
    for number in range(n):
        for (x,) in DataLoader(data, batch_size=8, shuffle=True):
            with way.phase("forward"):
                loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        try:
            next(iter(DataLoader(Torn(data.tensors[0]))))
        except OSError as error:
            print(error)
        model.eval()
        with torch.no_grad(), way.phase("evaluation"):
            print([model(x).sum().item() for (x,) in DataLoader(data, batch_size=5)])
        model.train()
        with way.phase("checkpoint"):
            file = io.BytesIO()
            torch.save(model.state_dict(), file)
        print(hashlib.sha256(file.getvalue()).hexdigest())
        dcp.save({"model": model.state_dict()}, checkpoint_id=f"{folder}{number}", no_dist=True)
        print(sorted(os.listdir(f"{folder}{number}")))
        shutil.rmtree(f"{folder}{number}")  # it has a random number in it
        try:
            torch.save(lambda: 0, io.BytesIO())
        except Exception as error:
            print(type(error).__name__)
way.attach(model, optimizer)
rounds(2, "first")
way.detach()
rounds(2, "second")
"""),
    train("200 optimizers alive", """
torch.manual_seed(0)
model = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(200))
all_of_them = [torch.optim.SGD(part.parameters(), 0.1) for part in model]
optimizer = all_of_them[0]
def rounds(n):
    for _ in range(n):
        for part, one in zip(model, all_of_them):
            one.zero_grad()
            part(torch.randn(3, 2)).square().mean().backward()
            one.step()
way.attach(model, all_of_them)
rounds(2)
way.detach()
rounds(2)
"""),
    train("sparse gradients", watched("""
class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 1, sparse=True)
    def forward(self, x):
        return self.table((x * 10).long() % 50)
torch.manual_seed(0)
model = Words()
optimizer = torch.optim.SparseAdam(model.parameters())
""")),
    Program("gradients that are all NaN, and the Alertmanager behind TLS that is to hear of them is not there", NAN_GRADIENTS, place=Place(
        prepare="printf 'tls_config: {insecure_skip_verify: true}' > alertmanager.yml",
        environment={"GRADVANE_ALERTMANAGER_URL": "https://127.0.0.1:1", "GRADVANE_ALERTMANAGER_HTTP_CONFIG": "alertmanager.yml"}), whole=True, differs=A_RECORDING_STAYS),
    Program("gradients that are all NaN", NAN_GRADIENTS, whole=True, differs=A_RECORDING_STAYS),
    train("an empty model, an empty tensor, a scalar, shared weights", """
torch.manual_seed(0)
class Odd(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.empty = torch.nn.Parameter(torch.empty(0, 3))
        self.scalar = torch.nn.Parameter(torch.tensor(2.0))
        self.one = torch.nn.Linear(4, 4)
        self.two = torch.nn.Linear(4, 4)
        self.two.weight = self.one.weight
    def forward(self, x):
        return (self.two(self.one(x)) * self.scalar).sum() + self.empty.sum()
model = Odd()
optimizer = torch.optim.Adam(model.parameters())
way.attach(torch.nn.Module())
way.attach(model, optimizer)
tiny.train(model, optimizer)
way.detach()
tiny.train(model, optimizer)
"""),
    train("10,000 parameters", watched("""
torch.manual_seed(0)
class Many(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.all = torch.nn.ParameterList(torch.randn(3) for _ in range(10_000))
    def forward(self, x):
        return torch.stack(list(self.all)).square().sum() * x.mean()
model = Many()
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
""")),
    train("gradient checkpointing and double backward", """
from torch.utils.checkpoint import checkpoint
model, optimizer = tiny.make()
def steps(n):
    for _ in range(n):
        optimizer.zero_grad()
        x = torch.randn(8, 4, requires_grad=True)
        y = model[2](checkpoint(model[0], x, use_reentrant=True)).square().mean()
        slope, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (y + slope.square().mean()).backward()
        optimizer.step()
way.attach(model, optimizer)
steps(3)
way.detach()
steps(3)
"""),
    train("the optimizer steps within the backward pass", """
model, optimizer = tiny.make()
each = {p: torch.optim.SGD([p], 0.05) for p in model.parameters()}
def update(p):
    each[p].step()
    each[p].zero_grad()
for p in each:
    p.register_post_accumulate_grad_hook(update)
def steps(n):
    for _ in range(n):
        model(torch.randn(8, 4)).square().mean().backward()
way.attach(model, list(each.values()))
steps(3)
way.detach()
steps(3)
"""),
    train("a program that clips with torch's functions", """
model, optimizer = tiny.make()
def steps(n):
    for clip in (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_) * n:
        tiny.step(model, optimizer, clip)
way.attach(model, optimizer)
steps(3)
way.detach()
steps(3)
"""),
    train("a program that clips with ours", """
model, optimizer = tiny.make()
way.attach(model, optimizer)
tiny.train(model, optimizer, 3, way.clip_grad_norm_)
way.detach()
tiny.train(model, optimizer, 3, way.clip_grad_norm_)
""", within=1e-6),
    train("a program that clips bfloat16 gradients with ours", """
model, optimizer = tiny.make()
model.to(torch.bfloat16)
def steps(n):
    for _ in range(n):
        optimizer.zero_grad()
        model(torch.randn(8, 4, dtype=torch.bfloat16)).square().mean().backward()
        way.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
way.attach(model, optimizer)
steps(3)
way.detach()
steps(3)
""", within=1e-2),
    train("gradients that are written to by .data before our clip, one of them frozen", """
model, optimizer = tiny.make()
def steps(n):
    for _ in range(n):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        frozen = model[0].bias.requires_grad_(False)
        for p in model.parameters():
            p.grad.data.mul_(10)
        way.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        frozen.requires_grad_(True)
way.attach(model, optimizer)
steps(3)
way.detach()
steps(3)
""", within=1e-6),
    ranks("two ranks, data parallel", "data parallel", first=True),
    ranks("two ranks that average their gradients by hand before our clip", "by hand", within=1e-6),
    ranks("two ranks, FSDP2, clipped with torch's function", "FSDP2, torch's clip"),
    ranks("two ranks, FSDP2, clipped with ours", "FSDP2, our clip"),
    ranks("two ranks, tensor parallel, clipped with torch's function", "tensors, torch's clip"),
    ranks("two ranks, tensor parallel, clipped with ours", "tensors, our clip"),
    ranks_that_agree("two ranks that agree, compare their weights, and look at gradients before they are averaged"),
    ranks_of_two_machines_that_agree("three ranks on two machines that agree"),
    Program("processes that train one shared model, with one step log", """
        shared = tiny.make(seed=2)[0].share_memory()
        context = mp.get_context("fork")
        children = [context.Process(target=hogwild, args=(shared, seed)) for seed in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
        print([child.exitcode for child in children])
        """, top="""
def hogwild(shared, seed):
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(shared.parameters(), 1e-3)
    way.attach(shared, optimizer)
    tiny.train(shared, optimizer, 20)
""", place=Place(prepare="mkdir -p $TMPDIR/gradvane-log",
                         environment={"GRADVANE_STEP_LOG": "{folder}/tmp/gradvane-log/steps.jsonl"})),
]
