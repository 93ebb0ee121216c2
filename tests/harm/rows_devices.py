"""Trainings on a GPU. cuda_test.py runs them where there is one."""

from program import Program

PROGRAMS = [
    Program("a whole step is captured in a CUDA graph and replayed", """
torch.manual_seed(0)
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
""", whole=True, needs="cuda"),
]
