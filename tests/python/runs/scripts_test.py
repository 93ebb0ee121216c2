"""Five scripts from well-known patterns, not one line of them about Gradvane, against an observer of torch's
own."""

import json
import re

import pytest
import running
import torch

SCRIPTS = ["image_classifier", "word_model", "gan", "transformer", "lbfgs_fit"]


def reference(script, folder):
    out = folder / "reference.json"
    running.python(running.TESTS / "support" / "reference.py", out, script, cwd=folder)
    return json.loads(out.read_text())


@pytest.mark.parametrize("name", SCRIPTS)
def test_steps_norms_losses_and_rates_are_those_that_torch_computes(name, tmp_path):
    script = running.SCRIPTS / f"{name}.py"
    expected = reference(script, tmp_path)
    steps, _ = running.watched(script, cwd=tmp_path)
    assert len(steps) == len(expected)
    for step, truth in zip(steps, expected):
        assert step["grad_norm"] == pytest.approx(truth["norm"], rel=1e-6)
        loss = truth["losses"][-1] if name == "lbfgs_fit" else sum(truth["losses"])
        assert step["loss"] == pytest.approx(loss, rel=1e-6)
        if truth["lr"]:
            assert step["lr"] == pytest.approx(truth["lr"] if len(truth["lr"]) > 1 else truth["lr"][0])
        if truth["max"] is not None:
            coefficient = min(1.0, truth["max"] / (truth["norm"] + 1e-6))
            assert step["clip_coefficient"] == pytest.approx(coefficient, rel=1e-5)
            assert step["grad_norm_at_step"] == pytest.approx(truth["norm"] * coefficient, rel=1e-5)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_weights_are_those_of_the_script_alone_bit_for_bit(name, tmp_path):
    script = running.SCRIPTS / f"{name}.py"
    weights = []
    for way in ("alone", "watched"):
        folder = tmp_path / way
        folder.mkdir()
        if way == "alone":
            plain = running.python(script, cwd=folder)
        else:
            _, done = running.watched(script, cwd=folder)
        weights.append(torch.load(folder / "weights.pt"))
    assert done.stdout == plain.stdout
    assert weights[0].keys() == weights[1].keys()
    for key, value in weights[0].items():
        assert torch.equal(value, weights[1][key]), key


def test_step_numbers_and_micro_steps_are_right(tmp_path):
    counts = {}
    for name in SCRIPTS:
        steps, _ = running.watched(running.SCRIPTS / f"{name}.py", cwd=tmp_path)
        counts[name] = [(s["optimizer"], s["step"], s["run_step"], s["micro_steps"]) for s in steps]
    assert counts["image_classifier"] == [(0, i, i, 1) for i in range(1, 19)]
    assert counts["word_model"] == [(0, i, i, 1) for i in range(1, 21)]
    assert counts["gan"] == [row for i in range(1, 11) for row in ((0, i, i, 2), (1, i, i, 1))]
    assert counts["transformer"] == [(0, i, i, 4) for i in range(1, 9)]
    assert [row[:3] for row in counts["lbfgs_fit"]] == [(0, i, i) for i in range(1, 5)]
    assert all(row[3] > 1 for row in counts["lbfgs_fit"]), "the evaluations of a closure"


ASK = """
import json, os, urllib.request
from gradvane import _agent
_agent.live().flush()
for path in ("metrics", "api/v1/params"):
    text = urllib.request.urlopen(_agent.live().url + "/" + path).read().decode()
    open(os.path.basename(path), "w").write(text)
"""
NAMES = {
    "image_classifier": {"conv1.weight", "conv2.bias", "fc1.weight", "fc2.bias"},
    "word_model": {"encoder.weight", "rnn.weight_ih_l0", "decoder.bias"},
    "gan": {"netG.main.0.weight", "netG.main.3.bias", "netD.main.2.weight"},
    "transformer": {"wte.weight", "h.0.attn.in_proj_weight", "h.1.mlp.2.bias", "ln_f.weight"},
    "lbfgs_fit": {"lstm1.weight_ih", "linear.bias"},
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_parameters_are_called_what_the_model_calls_them_and_metrics_are_served(name, tmp_path):
    """A line that asks the endpoint is put behind the script: what is served while it runs."""
    source = (running.SCRIPTS / f"{name}.py").read_text()
    save = re.search(r"^( *)torch\.save\(.*\n", source, re.M)
    asking = "".join(save[1] + line + "\n" for line in ASK.strip().splitlines())
    script = tmp_path / f"{name}.py"
    script.write_text(source.replace(save[0], asking + save[0]))
    steps, _ = running.watched(script, cwd=tmp_path)
    params = json.loads((tmp_path / "params").read_text())
    names = {row["name"] for row in params["params"]}
    assert NAMES[name] <= names
    metrics = (tmp_path / "metrics").read_text()
    exported = float(re.search(r"^gradvane_steps_total\{[^}]*\} (\S+)$", metrics, re.M)[1])
    # A loop without an optimizer ends a step where the next one begins.
    assert exported == len(steps) - (1 if name == "word_model" else 0)
    assert re.search(r"^gradvane_grad_norm\{[^}]*\} \S+$", metrics, re.M)
    assert re.search(r"^gradvane_loss\{[^}]*\} \S+$", metrics, re.M)
    assert f'run="{name}"' in metrics


POISONS = {
    "image_classifier": ("        optimizer.step()\n", "        model.fc1.weight.grad[3, 7] = float('nan')\n", "fc1.weight"),
    "word_model": ("        torch.nn.utils.clip_grad_norm_(", "        model.rnn.bias_hh_l0.grad[5] = float('inf')\n", "rnn.bias_hh_l0"),
    "gan": ("    optimizerD.step()\n", "    netD.main[2].weight.grad[0, 9] = float('nan')\n", "netD.main.2.weight"),
    "transformer": ("    clip_grad_norm_(model", "    model.h[1].ln_2.weight.grad[4] = float('nan')\n", "h.1.ln_2.weight"),
    "lbfgs_fit": ("            return loss\n", "            seq.linear.weight.grad[0, 2] = float('nan')\n", "linear.weight"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_one_more_line_that_makes_a_nan_is_blamed_on_its_parameter(name, tmp_path):
    before, line, param = POISONS[name]
    source = (running.SCRIPTS / f"{name}.py").read_text()
    assert before in source
    script = tmp_path / f"{name}.py"
    script.write_text(source.replace(before, line + before, 1))
    steps, done = running.watched(script, cwd=tmp_path, check=False)
    first = next(step["first_nonfinite"] for step in steps if "first_nonfinite" in step)
    assert first["site"] == "grad"
    assert first["param"] == param
    assert first["kind"] == ("pos_inf" if name == "word_model" else "nan")
    assert first["element"] >= 0
    assert param in done.stderr, "a person who reads the terminal is told"
