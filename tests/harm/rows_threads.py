"""Trainings in several threads: the same bits come out of them, and nothing reads what another thread frees."""

from program import Program
from rows_training import A_RECORDING_STAYS, train

FLICKER = """
class Idle(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
    def step(self, closure=None):
        return None
tiny.make()  # seeds
model = torch.nn.Linear(512, 513)
optimizer = Idle(model.parameters())
for param in model.parameters():
    param.grad = torch.zeros_like(param)
loss, over = torch.ones((), requires_grad=True), threading.Event()
def flicker():
    while not over.is_set():
        model.weight.grad.fill_(float("nan"))
        model.weight.grad.zero_()
def steps(n):
    for _ in range(n):
        (loss * 1).backward()
        optimizer.step()
way.attach(model, optimizer)
thread = threading.Thread(target=flicker)
thread.start()
steps(300)
over.set()
thread.join()
way.detach()
steps(3)
"""

MODELS = """
pairs = [tiny.make(seed=seed, lr=1e-3) for seed in range(6)]  # slowly: neither spikes nor vanishing gradients, which would be incidents
model, optimizer = pairs[0]
for each, _ in pairs:
    each.eval()
batches = torch.randn(1, 8, 4).expand(4, -1, -1)
def steps(model, optimizer):
    for x in batches:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""
WATCHED = """
way.attach(torch.nn.ModuleList(model for model, _ in pairs), [optimizer for _, optimizer in pairs])
for _ in range(40):
    all_at_once()
way.detach()
all_at_once()
print([witness.numbers(model) for model, _ in pairs])
"""

PROGRAMS = [
    Program("a thread that makes the gradients NaN and 0 in turns while they are read", FLICKER, whole=True,
            differs=A_RECORDING_STAYS),
    train("six threads train a model each, and others go on with them", MODELS + """
def all_at_once():
    threads = [threading.Thread(target=steps, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
""" + WATCHED),
    train("each of a pool's four threads trains whichever model is next", MODELS + """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(4)
def all_at_once():
    for _ in range(10):
        list(pool.map(lambda pair: steps(*pair), pairs))
""" + WATCHED),
    train("a thread hands its model to a new one, and goes on with another", MODELS + """
def goes_on(handed_over, is_over):
    steps(*pairs[0])
    handed_over.set()
    while not is_over.is_set():
        for model, optimizer in pairs[1:]:
            optimizer.zero_grad()
            (model(batches[0]).mean() * 0).backward()
def takes_over(handed_over, is_over):
    handed_over.wait()
    steps(*pairs[0])
    is_over.set()
def all_at_once():
    for _ in range(10):
        events = threading.Event(), threading.Event()
        threads = [threading.Thread(target=target, args=events) for target in (goes_on, takes_over)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
""" + WATCHED),
]
