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
for _ in range(12):
    all_at_once()
way.detach()
all_at_once()
print([witness.numbers(model) for model, _ in pairs])
"""



def by_hand(name: str, body: str) -> Program:
    """In a process of its own: such a program is watched whole."""
    return Program(name, f"""
import queue
sys.setswitchinterval(1e-5)
tiny.make()  # seeds
x = torch.randn(3, 2)
def deep():
    return torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(20)])
def both_at_once(target, several):
    threads = [threading.Thread(target=target, args=(one,)) for one in several]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
{body}
model, optimizer = pairs[0], torch.optim.SGD(pairs[0].parameters(), 1e-4)
print([witness.numbers(one) for one in pairs])
""", whole=True)


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
    by_hand("two threads train a model each by hand, without an optimizer", """
pairs = [deep() for _ in range(2)]
def trains(model):
    params = list(model.parameters())
    for _ in range(150):
        model(x).square().sum().backward()
        with torch.no_grad():
            for param in params:
                param -= 1e-4 * param.grad
                param.grad = None
way.attach()
for _ in range(5):  # new threads for the same models, as the steps of the old ones end
    both_at_once(trains, pairs)
way.detach()
both_at_once(trains, pairs)
"""),
    by_hand("five threads train a layer each, with an optimizer each", """
pairs = [torch.nn.Linear(2, 1) for _ in range(5)]
optimizers = {model: torch.optim.SGD(model.parameters(), 1e-4) for model in pairs}
def trains(model):
    for _ in range(300):
        optimizers[model].zero_grad()
        model(x).square().sum().backward()
        optimizers[model].step()
way.attach()
both_at_once(trains, pairs)
way.detach()
both_at_once(trains, pairs)
"""),
    by_hand("a thread takes norms of its own tensors while another one trains", """
pairs = [deep(), [torch.randn(3) for _ in range(9)]]
optimizer = torch.optim.SGD(pairs[0].parameters(), 1e-4)
over = threading.Event()
def trains(what):
    if what is pairs[1]:
        while not over.is_set():
            torch.nn.utils.get_total_norm(what)
        return
    for _ in range(400):
        optimizer.zero_grad()
        what(x).square().sum().backward()
        optimizer.step()
    over.set()
way.attach(pairs[0], optimizer)
both_at_once(trains, pairs)
way.detach()
over.clear()
both_at_once(trains, pairs)
pairs.pop()
"""),
    by_hand("a thread takes the gradients of a model away while the one that made them goes on with another", """
pairs = [deep(), torch.nn.Linear(2, 1)]
optimizers = [torch.optim.SGD(model.parameters(), 1e-4) for model in pairs]
def one_after_the_other(rounds=500):
    todo, done = queue.SimpleQueue(), queue.SimpleQueue()
    def takes_away():
        while todo.get():
            optimizers[0].zero_grad()
            done.put(1)
    thread = threading.Thread(target=takes_away)
    thread.start()
    for _ in range(rounds):
        pairs[0](x).square().sum().backward()
        todo.put(1)
        for _ in range(3):
            optimizers[1].zero_grad()
            pairs[1](x).square().sum().backward()
            optimizers[1].step()
        done.get()
    todo.put(0)
    thread.join()
way.attach(torch.nn.ModuleList(pairs), optimizers)
one_after_the_other()
way.detach()
one_after_the_other()
"""),
    by_hand("a thread trains while the script forks, and a child lets go of an optimizer", """
pairs = [torch.nn.Sequential(*[torch.nn.Linear(400, 400) for _ in range(4)]), torch.nn.Linear(2, 1)]
optimizers = [torch.optim.SGD(model.parameters(), 1e-4) for model in pairs]
def step(model, optimizer, n):
    optimizer.zero_grad()
    model(torch.ones(1, n)).square().mean().backward()
    optimizer.step()
def trains():
    while not over.is_set():
        step(pairs[0], optimizers[0], 400)
        steps.append(1)
def forks(n=60):
    for _ in range(n):
        pid = os.fork()
        if pid == 0:
            optimizers.pop()
            os._exit(0)
        os.waitpid(pid, 0)
def at_once():
    thread = threading.Thread(target=trains)
    thread.start()
    forks()
    over.set()
    thread.join()
    over.clear()
steps, over = [], threading.Event()
step(pairs[1], optimizers[1], 2)
way.attach(torch.nn.ModuleList(pairs), optimizers)
at_once()
way.detach()
at_once()
pairs.pop(0)  # it has taken as many steps as there was time for
"""),
]
