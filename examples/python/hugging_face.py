"""Hugging Face's Trainer, with a GPT-2 made small enough for a CPU: python hugging_face.py"""

import inspect
import textwrap

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from gradvane.integrations.transformers import GradvaneCallback

CONTEXT = 32


class Text(torch.utils.data.Dataset):
    """The source of a module of Python's, in bytes."""

    def __init__(self):
        self.bytes = torch.tensor(list(inspect.getsource(textwrap).encode()))

    def __len__(self):
        return len(self.bytes) - CONTEXT

    def __getitem__(self, i):
        piece = self.bytes[i : i + CONTEXT]
        return {"input_ids": piece, "labels": piece}


def main(steps=50):
    config = GPT2Config(vocab_size=256, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=2)
    arguments = TrainingArguments(
        "checkpoints",
        max_steps=steps,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        max_grad_norm=1.0,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    callback = GradvaneCallback(run="hugging-face")
    Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Text(), callbacks=[callback]).train()


if __name__ == "__main__":
    main()
