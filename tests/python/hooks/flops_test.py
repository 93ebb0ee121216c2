"""Model FLOPs utilization: a training whose tokens are known, by its step log and its metrics. No clock is asked: what is
expected follows from the step times that the log has."""

import re
import time
import urllib.request

import pytest
import running
import torch
from small_net import net

import gradvane

FLOPS, PEAK = 6.0e6, 5.0e10
TOKENS = (512, 512, 512, 2048, None, 512, 512)
"""None: that step counts none, and has no value"""


def train(tokens):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    yield model, optimizer
    for count in tokens:
        model(torch.randn(4, 6)).square().mean().backward()
        if count is not None:
            gradvane.count(tokens=count)
        optimizer.step()
        optimizer.zero_grad()


def expected(steps):
    """As the definition says: tokens and seconds averaged, a new step with weight 0.1, and the FLOPs of that."""
    tokens = seconds = None
    found = []
    for step in steps:
        if step.get("step_seconds") is None or step.get("tokens") is None:
            found.append(None)
            continue
        tokens = step["tokens"] if tokens is None else 0.9 * tokens + 0.1 * step["tokens"]
        seconds = step["step_seconds"] if seconds is None else 0.9 * seconds + 0.1 * step["step_seconds"]
        found.append(tokens / seconds * FLOPS / PEAK)
    return found


def of(steps):
    return [step.get("model_flops_utilization") for step in steps]


def run(watching, tokens=TOKENS, **options):
    training = train(tokens)
    watching(*next(training), **options)
    next(training, None)


def test_it_is_the_tokens_per_second_times_their_flops_over_the_peak(watching):
    run(watching, flops_per_token=FLOPS, peak_flops=PEAK)
    steps = watching.steps()
    assert [step.get("tokens") for step in steps] == list(TOKENS)
    assert of(steps)[0] is None, "the first step has no time"
    assert of(steps)[4] is None
    assert len([value for value in of(steps) if value]) == len(TOKENS) - 2
    assert of(steps) == pytest.approx(expected(steps), rel=1e-9)


@pytest.mark.parametrize("options", [{}, {"flops_per_token": FLOPS}, {"peak_flops": PEAK},
                                     {"flops_per_token": 0, "peak_flops": PEAK}])
def test_it_is_absent_if_an_option_is_not_known(watching, options):
    run(watching, **options)
    assert of(watching.steps()) == [None] * len(TOKENS)


def test_it_is_absent_if_tokens_are_not_counted(watching):
    run(watching, [None] * 4, flops_per_token=FLOPS, peak_flops=PEAK)
    assert of(watching.steps()) == [None] * 4


def metrics(agent):
    with urllib.request.urlopen(agent.url + "/metrics") as answer:
        return dict(re.findall(r"^(gradvane_\w+)\{[^}]*\} (\S+)$", answer.read().decode(), re.MULTILINE))


def test_prometheus_gets_the_value_of_the_last_step(watching):
    run(watching, flops_per_token=FLOPS, peak_flops=PEAK, port=0)
    until = time.monotonic() + 60
    while (found := metrics(watching.agent)).get("gradvane_run_step") != str(len(TOKENS)):
        assert time.monotonic() < until, found
        time.sleep(0.01)
    last = watching.steps()[-1]
    assert float(found["gradvane_model_flops_utilization_ratio"]) == pytest.approx(last["model_flops_utilization"])


TRAINER = """
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    from gradvane.integrations.transformers import GradvaneCallback
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2,
                                       tie_word_embeddings={tied}))
    for weight in model.transformer.h[0].parameters():
        weight.requires_grad_({trained})
    data = [{{"input_ids": (w := torch.randint(0, 50, (12,))), "labels": w}} for _ in range(64)]
    arguments = TrainingArguments("out", max_steps=4, per_device_train_batch_size=4, report_to=[], use_cpu=True,
                                  save_strategy="no", disable_tqdm=True, include_num_input_tokens_seen="all")
    callback = GradvaneCallback(step_log="steps.jsonl", port=-1, peak_flops=5e10{given})
    Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()
"""
# Counted here: embeddings of 50 words and 16 positions, two blocks of 16, a last norm, and a head if it is not tied.
WIDE = 16
BLOCK = 2 * 2 * WIDE + (WIDE + 1) * 3 * WIDE + (WIDE + 1) * WIDE + (WIDE + 1) * 4 * WIDE + (4 * WIDE + 1) * WIDE
WORDS, POSITIONS, NORM = 50 * WIDE, 16 * WIDE, 2 * WIDE
ALL = WORDS + POSITIONS + 2 * BLOCK + NORM


@pytest.mark.parametrize("tied, trained, given, flops", [
    (True, True, "", 6 * ALL),
    (False, True, "", 6 * ALL),  # the head has as many as the table, which is only looked up
    (True, False, "", 6 * ALL - 2 * BLOCK),
    (True, True, ", flops_per_token=123.0", 123.0),
])
def test_hugging_faces_callback_knows_the_flops_of_its_model(tmp_path, tied, trained, given, flops):
    script = running.write(tmp_path, TRAINER.format(tied=tied, trained=trained, given=given))
    running.python(script, cwd=tmp_path, modules=running.HUGGING_FACE, HF_HUB_OFFLINE="1")
    steps = running.steps_in(tmp_path / "steps.jsonl")
    value = next(value for value in of(steps) if value)
    step = next(step for step in steps if step.get("model_flops_utilization"))
    assert value == pytest.approx(step["tokens"] / step["step_seconds"] * flops / 5e10, rel=1e-9)


def test_a_model_of_another_kind_has_no_flops():
    pytest.importorskip("transformers")
    from gradvane.integrations.transformers import _flops_per_token

    assert _flops_per_token(net()) == 0
