"""The stage that trains in C++ on a GPU: here on a CPU, with the smallest model."""

import os
from pathlib import Path

import pytest
import train_stage
from process import Deadline, Log


class Build:
    def program(self, name):
        return Path(os.environ["GRADVANE_BIN_DIR"]) / name

    def build(self, _targets, _deadline):
        return 0.0


class Context:
    def __init__(self, folder, seconds=300):
        self.build, self.log, self.deadline, self.quick = Build(), Log(folder / "log"), Deadline(seconds), True


@pytest.fixture
def small(monkeypatch):
    """As the stage calls it, but for what asks for a GPU, or for minutes."""
    real = train_stage.run_or_fail

    def on_a_cpu(name, command, *rest, **how):
        words = [str(word) for word in command]
        words[words.index("gpt2")], words[words.index("cuda")] = "tiny", "cpu"
        return real(name, [*words, "--threads", "1"], *rest, **how)

    monkeypatch.setattr(train_stage, "run_or_fail", on_a_cpu)
    monkeypatch.setattr(train_stage, "BATCHES", (1, 2))


def test_each_arm_is_compared_with_the_training_without_an_agent_at_each_length(small, tmp_path, capsys):
    result = train_stage.run_stage(Context(tmp_path))
    assert result["failure"] is None and [one["batch"] for one in result["lengths"]] == [1, 2]
    for length in result["lengths"]:
        assert set(length["arms"]) == {"lagged", "immediate", "ledger"} and length["rounds"] == 2
        assert length["weights_repeat_without_agent"]
        for found in length["arms"].values():
            assert found["weights_identical"] and found["hook_seconds_per_step"] > 0 and len(found["ratio_of_each_round"]) == 2
            assert found["param_states"]["finite"] > 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2 * 3


def test_weights_that_differ_under_an_agent_are_a_failure(small, tmp_path, monkeypatch):
    """The control."""
    monkeypatch.setattr(train_stage, "ARMS", {"off": ["--no-agent"], "immediate": ["--seed", "2"]})
    monkeypatch.setattr(train_stage, "BATCHES", (1,))
    assert "batch 1, immediate: " in train_stage.run_stage(Context(tmp_path))["failure"]


def test_without_time_it_says_so(small, tmp_path):
    with pytest.raises(train_stage.StageError):
        train_stage.run_stage(Context(tmp_path, seconds=0))
