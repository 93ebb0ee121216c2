"""A CUDA graph of a training step."""

from collections.abc import Callable

import torch


def captured(step: Callable[[], object], warm_up: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Of `step`, after three of `warm_up` on a stream of their own, as torch asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            warm_up()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph
