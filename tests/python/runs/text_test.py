"""Names and texts that are not UTF-8: a training with them runs and ends as without Gradvane."""

import logging
import os
import sys

import pytest
import running
import torch

import gradvane

HALF = "\ud83d"
"""of a character: str has it, UTF-8 does not"""
ODD = os.fsdecode(b"caf\xe9")
"""the name of a file, in Latin-1"""


def train(model, optimizer, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def pieces():
    model = torch.nn.Linear(4, 4)
    return model, torch.optim.SGD(model.parameters(), 0.1)


@pytest.mark.parametrize("name", [HALF, ODD, "a\nb", "\x1b[31m", "\0"], ids=ascii)
def test_a_run_may_have_any_name(watching, name):
    model, optimizer = pieces()
    agent = watching(model, optimizer, run=name, port=0, linger_seconds=0)
    train(model, optimizer)
    assert agent.run and agent.url and repr(agent)
    assert [s["step"] for s in watching.steps()] == [1, 2]


@pytest.mark.parametrize("text", [HALF, ODD], ids=ascii)
def test_what_a_program_logs_or_ends_with_may_be_any_text(watching, text):
    model, optimizer = pieces()
    with pytest.raises(ArithmeticError, match=text), watching(model, optimizer):
        gradvane.log({text: 1.0}, loss=2.0)
        train(model, optimizer)
        raise ArithmeticError(text)
    assert watching.agent.status().state == "failed"
    assert "ArithmeticError" in watching.agent.status().reason


def test_a_folder_or_a_file_may_have_any_name_and_recordings_in_it_are_found(watching, tmp_path):
    folder = tmp_path / ODD
    folder.mkdir()
    model, optimizer = pieces()
    agent = watching(model, optimizer, run_dir=folder, step_log=folder / "steps.jsonl", recorder_dir=folder)
    train(model, optimizer)
    with torch.no_grad():
        model.weight.fill_(float("nan"))
    train(model, optimizer)
    agent.detach()
    assert len(running.steps_in(folder / "steps.jsonl")) == 4
    assert os.path.exists(agent.recording), "the path that is said can be opened"
    done = running.python("-m", "gradvane", "replay", agent.recording, cwd=tmp_path)
    assert "nan" in done.stdout.lower()


def test_what_is_wrong_with_such_a_configuration_is_said(watching, tmp_path):
    file = tmp_path / f"{ODD}.yaml"
    model, optimizer = pieces()
    for wrong, what in ((b"run_dri: x\n", "run_dri"), (b"mode: x\xff\n", "mode"), (b"\xff\n", ODD)):
        file.write_bytes(wrong)
        with pytest.raises((gradvane.GradvaneError, ValueError), match=what):
            watching(model, optimizer, config=file)
    with pytest.raises(ValueError, match=r"on_nonfinite = '\?'"):
        watching(model, optimizer, on_nonfinite=HALF)


def test_a_script_with_such_a_name_in_such_a_folder_runs_under_gradvane(tmp_path):
    folder = tmp_path / ODD
    folder.mkdir()
    script = folder / f"{ODD}.py"
    script.write_text(running.textwrap.dedent(running.TRAINS_AND_WAITS))
    for words in ([script], ["-m", "gradvane", "run", "--linger-seconds", "0", script]):
        done = running.subprocess.run([sys.executable, *words], stdin=running.subprocess.DEVNULL, capture_output=True,
                                      cwd=folder, env=running.environment(TMPDIR=str(folder)), timeout=120)
        assert (done.returncode, done.stdout) == (0, b"trained\n"), done.stderr
    assert b"Traceback" not in done.stderr and b"ended: 3 steps" in done.stderr


class Raising(logging.Handler):
    def emit(self, record):
        raise ArithmeticError(record.getMessage())


@pytest.mark.parametrize("kind", ["handler", "filter"])
def test_what_a_program_has_put_into_our_log_may_raise(watching, kind):
    """At attach(), in a hook, in our own thread and at the end."""
    logger = logging.getLogger("gradvane")
    before, level = logging.root.handlers[:], logger.level
    handler = Raising()

    def refuses(record):
        raise ArithmeticError(record.getMessage())

    logger.addHandler(handler) if kind == "handler" else logger.addFilter(refuses)
    logger.setLevel(logging.DEBUG)
    try:
        model, optimizer = pieces()
        seen = []
        agent = watching(model, optimizer)
        agent.on_incident(seen.append)
        agent.on_incident(lambda _: 1 / 0)
        train(model, optimizer)
        with torch.no_grad():
            model.weight.fill_(float("nan"))
        train(model, optimizer)
        agent.flush()
        agent.detach()
        assert seen and not agent._teller.is_alive()
    finally:
        logger.removeHandler(handler)
        logger.removeFilter(refuses)
        logger.setLevel(level)
    assert logging.root.handlers == before
