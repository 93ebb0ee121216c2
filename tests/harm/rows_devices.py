"""Trainings on a GPU. cuda_test.py runs them where there is one."""

from program import Place, Program

FUSED = """
torch.manual_seed(0)
random.seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
def steps(n):
    for _ in range(n):
        optimizer.zero_grad()
        model(torch.randn(4, 8, device="cuda")).square().mean().backward()
        optimizer.step()
    print([p.sum().item() for p in model.parameters()])
way.attach(model, optimizer)
steps(20)
way.detach()
steps(20)
print(hasattr(optimizer, "found_inf"))
"""

PROGRAMS = [
    Program("policies that find nothing to skip, on a GPU", FUSED, whole=True, needs="cuda", counts_syncs=True,
            place=Place(environment={"GRADVANE_ON_NONFINITE": "skip", "GRADVANE_SKIP_NORM": "1e9"})),
    Program("a training whose host syncs are not counted, on a GPU", FUSED, whole=True, needs="cuda",
            place=Place(environment={"GRADVANE_SYNC": "off"})),
    Program("policies on a GPU, where host syncs are not counted", FUSED, whole=True, needs="cuda",
            place=Place(environment={"GRADVANE_SYNC": "off", "GRADVANE_ON_NONFINITE": "skip", "GRADVANE_SKIP_ON_DEVICE": "on"})),
    Program("a fused optimizer that may leave out bad steps by itself, on a GPU", FUSED, whole=True, needs="cuda", counts_syncs=True,
            place=Place(environment={"GRADVANE_ON_NONFINITE": "skip", "GRADVANE_SKIP_ON_DEVICE": "on"})),
    Program("a whole step is captured in a CUDA graph and replayed", """
torch.manual_seed(0)
random.seed(0)
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
x = torch.randn(4, 8, device="cuda")
def step():
    optimizer.zero_grad(set_to_none=True)
    model(x).square().mean().backward()
    optimizer.step()
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(stream)
way.attach(model, optimizer)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for _ in range(20):
    graph.replay()
torch.cuda.synchronize()
way.detach()
for _ in range(20):
    graph.replay()
torch.cuda.synchronize()
""", whole=True, needs="cuda", counts_syncs=True),
]
