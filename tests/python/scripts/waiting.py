"""A training with host syncs in known lines, over a CUDA that is not there.

waiting.py [--taken-by TOOL] [--no-cuda]
"""

import argparse
import ctypes
import os
import threading
import unittest.mock

import torch

WARM_UPS = 4
STEPS = 24
LOG_EVERY = 3
EVALUATED_AT = 12
BATCHES = 8
PREFETCHED = 6

words = argparse.ArgumentParser()
words.add_argument("--taken-by")
words.add_argument("--no-cuda", action="store_true")
options = words.parse_args()

if options.no_cuda:
    cuda = unittest.mock.Mock()
else:
    cuda = ctypes.CDLL(os.environ["FAKE_CUDA"])
    if options.taken_by:
        cuda.fake_take_by(options.taken_by.encode())
    ctypes.CDLL("libcuda.so.1").cuInit(0)

# A busy machine adds some time to each call: so the more there are of one sort, the longer they take in all.


def warm_up():
    for _ in range(WARM_UPS):
        cuda.fake_synchronize(30_000)


def is_bad(loss):
    cuda.fake_item(80_000)
    return False


def log(step):
    if step % LOG_EVERY == 0:
        cuda.fake_item(3_000)


class Evaluator:
    def __init__(self, model):
        self.model = model

    def evaluate_batches(self):
        self.model.eval()
        with torch.no_grad():
            for _ in range(BATCHES):
                self.model(torch.ones(2, 4))
                cuda.fake_item(40_000)
        self.model.train()


def prefetch():
    for _ in range(PREFETCHED):
        cuda.fake_item(100)


def train(model, optimizer):
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        cuda.fake_pageable_copy(32_000)
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        is_bad(loss)
        optimizer.step()
        log(step)
        if step == EVALUATED_AT:
            Evaluator(model).evaluate_batches()
            loader = threading.Thread(target=prefetch, name="loader")
            loader.start()
            loader.join()


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    warm_up()
    train(model, optimizer)


main()
