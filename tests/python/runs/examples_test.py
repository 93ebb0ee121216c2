"""The examples in Python, run as their first lines say."""

import ast
from pathlib import Path

import pytest
import running

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "python"
MODULES = {"plain_loop": 500, "gpt_ddp": 100, "fsdp2": 100, "hugging_face": 50, "lightning_module": 96}
OF_TWO = ("gpt_ddp", "fsdp2")
LOADED = {"hugging_face": running.HUGGING_FACE, "lightning_module": running.LIGHTNING}


def test_every_example_is_run_here_and_is_short():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(MODULES)
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 60, path
        assert path.name in ast.get_docstring(ast.parse(path.read_text())), "says how it is run"


@pytest.mark.parametrize("name", MODULES)
def test_an_example_trains_and_each_of_its_steps_is_measured(tmp_path, name):
    script = EXAMPLES / f"{name}.py"
    told = {"GRADVANE_STEP_LOG": str(tmp_path / "steps.jsonl"), "GRADVANE_RUN_DIR": str(tmp_path / "run")}
    if name == "fsdp2":  # as torchrun would start them; the other one of two is started by torchrun itself
        done = running.ranks(2, script, cwd=tmp_path, **told)
    else:
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"] if name in OF_TWO else []
        done = running.python(*torchrun, script, cwd=tmp_path, modules=LOADED.get(name, ()), **told)
    logs = sorted(tmp_path.glob("steps*.jsonl"))
    assert len(logs) == (2 if name in OF_TWO else 1)
    for log in logs:
        steps = running.steps_in(log)
        assert [s["step"] for s in steps] == list(range(1, MODULES[name] + 1))
        assert all(s["grad_norm"] > 0 and set(s["param_states"]) <= {"finite", "empty"} for s in steps[:-5])
        assert steps[-1]["loss"] < steps[0]["loss"], "it learns"
    assert done.stderr.count(": http://127.0.0.1:") == 1, "one process says where the run is seen"
