"""char_gpt as a person runs it: the built program, from outside."""

import json
import math
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

PROGRAM = Path(os.environ["GRADVANE_BIN_DIR"]) / "char_gpt"
TINY = ["--size", "tiny", "--threads", "1", "--device", "cpu"]


@pytest.fixture
def environment(tmp_path):
    """Any free port, no waiting for a last scrape, nothing of the user's own settings."""
    kept = {key: value for key, value in os.environ.items()
            if key == "GRADVANE_BIN_DIR" or not key.startswith("GRADVANE")}
    return kept | {"GRADVANE_PORT": "0", "GRADVANE_LINGER_SECONDS": "0",
                   "GRADVANE_RUN_DIR": str(tmp_path / "run")}


class Run:
    """One finished run and the files it wrote."""

    def __init__(self, folder: Path, environment: dict, arguments: list):
        folder.mkdir()
        files = {name: folder / name for name in ("json", "loss-log", "step-times")}
        outputs = [f"--{name}={path}" for name, path in files.items()]
        done = subprocess.run([PROGRAM, *TINY, *outputs, *arguments], env=environment,
                              capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        self.out = done.stdout
        self.summary = json.loads(files["json"].read_text())
        self.losses = files["loss-log"].read_text().splitlines()
        self.step_times = files["step-times"].read_text().splitlines()

    @property
    def trajectory(self):
        """Everything that training decided, bit for bit."""
        return self.losses, self.summary["weights_checksum"], self.summary["held_out_loss"]


@pytest.fixture
def train(tmp_path, environment):
    runs = []

    def start(*arguments) -> Run:
        runs.append(Run(tmp_path / f"run{len(runs)}", environment, list(arguments)))
        return runs[-1]

    return start


def refuse(environment, *arguments) -> str:
    """Runs it with a bad option and returns what it said."""
    done = subprocess.run([PROGRAM, *TINY, *arguments], env=environment, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "terminate" not in done.stderr
    return done.stderr


def test_help_works_and_needs_nothing(environment):
    done = subprocess.run([PROGRAM, "--help"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    for word in ("--size", "--fault", "middle", "130", "--gradvane-KEY=VALUE"):
        assert word in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 100


def test_it_learns(train):
    run = train("--steps=300")
    summary = run.summary
    assert summary["ln_vocabulary"] == pytest.approx(math.log(summary["vocabulary"]), rel=1e-6)
    assert summary["held_out_loss_before"] == pytest.approx(summary["ln_vocabulary"], abs=0.1)
    # Letter frequencies alone bring about 3.1 nats.
    assert summary["held_out_loss"] < 3.0
    assert f"ln(vocabulary): {summary['ln_vocabulary']:.4f}" in run.out
    assert re.search(rf"^held-out loss: {summary['held_out_loss']:.4f}$", run.out, re.MULTILINE)
    assert len(run.out.split("sample:\n")[1]) > 150
    assert len(run.losses) == len(run.step_times) == summary["steps"] == 300
    assert summary["nonfinite_steps"] == 0
    shown = re.findall(r"^step (\d+)/300  loss \S+  norm \S+  \S+ steps/s  non-finite 0  http://",
                       run.out, re.MULTILINE)
    assert shown == ["50", "100", "150", "200", "250", "300"]


def test_the_seed_decides_everything(train):
    arguments = ("--steps=30", "--sample=50", "--dropout=0.1")
    first = train(*arguments)
    again = train(*arguments)
    assert again.trajectory == first.trajectory
    assert again.out.split("sample:")[1] == first.out.split("sample:")[1]
    assert train(*arguments, "--seed=2").losses != first.losses


@pytest.mark.parametrize("clip", ["--clip-with=torch", "--clip=0"])
def test_training_is_the_same_with_and_without_the_agent(train, clip):
    arguments = ("--steps=60", "--sample=0", "--dropout=0.1", "--accumulate=2", clip)
    assert train(*arguments).trajectory == train(*arguments, "--no-agent").trajectory


def test_with_weights_in_bf16_it_learns_and_is_the_same_with_and_without_the_agent(train):
    arguments = ("--steps=60", "--sample=0", "--weights=bf16", "--clip-with=torch")
    watched, plain = train(*arguments), train(*arguments, "--no-agent")
    assert watched.trajectory == plain.trajectory
    assert watched.summary["weights"] == "bf16" and watched.summary["nonfinite_steps"] == 0
    assert float(watched.losses[-1].split()[1]) < float(watched.losses[0].split()[1]) - 0.5
    assert watched.trajectory != train("--steps=60", "--sample=0", "--clip-with=torch").trajectory


def test_the_agent_clips_as_torch_does(train):
    # The norm is read with more precision than torch's: the last digits of a loss may differ.
    arguments = ("--steps=40", "--sample=0", "--clip=0.3")
    ours = [float(line.split()[1]) for line in train(*arguments).losses]
    theirs = [float(line.split()[1]) for line in train(*arguments, "--no-agent").losses]
    assert ours == pytest.approx(theirs, rel=1e-3)
    unclipped = [float(line.split()[1]) for line in train(*arguments, "--clip=0").losses]
    assert unclipped != pytest.approx(theirs, rel=1e-3), "there was something to clip"


@pytest.mark.parametrize("options", [
    (), ("--clip-with=torch",), ("--clip=0",), ("--accumulate=2",), ("--no-agent",)])
def test_a_transient_fault_leaves_training_as_it_was(train, options):
    arguments = ("--steps=40", "--sample=0", "--dropout=0.1", *options)
    faults = ("--fault=nan@20,transient", "--fault", "-inf@31:final_norm.bias,transient")
    clean = train(*arguments)
    run = train(*arguments, *faults)
    assert run.trajectory == clean.trajectory
    if "--no-agent" not in options:
        assert clean.summary["nonfinite_steps"] == 0
        assert run.summary["nonfinite_steps"] == 2


def test_a_fault_that_stays_ruins_what_follows(train, tmp_path):
    log = tmp_path / "steps.jsonl"
    run = train("--steps=30", "--fault=inf@20:blocks.1.mlp.input.weight",
                f"--gradvane-step_log={log}")
    losses = [line.split()[1] for line in run.losses]
    assert all(math.isfinite(float(loss)) for loss in losses[:20])
    assert losses[20:] == ["nan"] * 10
    assert run.summary["held_out_loss"] == "nan"
    assert run.out.endswith("held-out loss: nan\nsample:\n\n")
    assert run.summary["nonfinite_steps"] == 11

    steps = [json.loads(line) for line in log.read_text().splitlines()]
    assert steps[19]["nonfinite"]["grad"] == {"nan": 0, "pos_inf": 1, "neg_inf": 0}
    assert steps[19]["read_at"] == "clip"
    assert steps[18]["nonfinite"]["grad"] == {"nan": 0, "pos_inf": 0, "neg_inf": 0}


@pytest.mark.parametrize(("arguments", "expected"), [
    (["--steps=0"], "--steps"),
    (["--frobnicate"], "--frobnicate"),
    (["--fault=nan@x"], "KIND@STEP"),
    (["--fault=nan@1:blocks.7.weight"], "token_embedding.weight"),
    (["--data=/nonexistent"], "--data /nonexistent"),
    (["--context=100000"], "--context 100000"),
    (["--json=/nonexistent/out.json"], "--json /nonexistent/out.json"),
    (["--gradvane-port=many"], "many"),
    (["--gradvane-prot=0"], "prot"),
])
def test_a_bad_option_is_named(environment, arguments, expected):
    assert expected in refuse(environment, *arguments)


def test_it_trains_on_a_file_of_ones_own(train, tmp_path):
    text = tmp_path / "alphabet.txt"
    text.write_text("abcdefghijklmnopqrstuvwxyz\n" * 200)
    run = train(f"--data={text}", "--steps=150", "--sample=60")
    assert run.summary["vocabulary"] == 27
    assert run.summary["held_out_loss"] < 0.5
    assert "jklmnop" in run.out.split("sample:\n")[1]


def start_long_run(environment, **options):
    return subprocess.Popen([PROGRAM, *TINY, "--steps=1000000", "--log-every=10", "--sample=20"],
                            env=environment, **options)


def test_ctrl_c_ends_the_run_in_order(environment):
    with start_long_run(environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("step 20/"):
                process.send_signal(signal.SIGINT)
                break
        rest = process.stdout.read()
    assert process.returncode == 130
    assert re.search(r"^interrupted", rest, re.MULTILINE)
    assert re.search(r"^held-out loss: \d\.\d{4}$", rest, re.MULTILINE)
    assert "sample:\n" in rest


def read_terminal(descriptor: int, until: bytes, seconds: float) -> bytes:
    seen = b""
    end = time.monotonic() + seconds
    while until not in seen and time.monotonic() < end:
        try:
            seen += os.read(descriptor, 65536)
        except OSError:  # the other side is closed
            break
    return seen


def test_on_a_terminal_one_line_is_rewritten(environment):
    ours, theirs = pty.openpty()
    with start_long_run(environment, stdout=theirs) as process:
        os.close(theirs)
        seen = read_terminal(ours, b"step 1", 60)
        while seen.count(b"\r\x1b[Kstep ") < 3:
            part = read_terminal(ours, b"steps/s", 60)
            assert part, seen
            seen += part
        process.send_signal(signal.SIGINT)
        seen += read_terminal(ours, b"sample:", 60)
        read_terminal(ours, b"\0", 60)
    os.close(ours)
    assert process.returncode == 130
    live = [line for line in seen.split(b"\n") if line.count(b"\r\x1b[Kstep ") > 1]
    assert len(live) == 1, seen
    assert b"held-out loss: " in seen


def test_skipping_bad_steps_ends_as_well_as_a_run_without_them(train):
    clean = train("--steps=300").summary
    skipped = train("--steps=300", "--fault=nan@25/25", "--on-nonfinite=skip").summary
    ruined = train("--steps=300", "--fault=nan@25/25").summary
    assert skipped["skipped_steps"] == skipped["nonfinite_steps"] == 12
    assert skipped["held_out_loss"] == pytest.approx(clean["held_out_loss"], rel=0.02)
    assert ruined["held_out_loss"] == "nan" and ruined["skipped_steps"] == 0, "the control"


def test_a_policy_that_has_nothing_to_skip_changes_no_bit(train):
    assert train("--steps=40", "--on-nonfinite=skip").trajectory == train("--steps=40").trajectory


def test_a_poisoned_optimizer_state_is_undone_by_a_rollback(train):
    """No gradient shows it. The step after it ruins the weights, and the one after that has a bad loss."""
    clean = train("--steps=60", "--on-nonfinite=rollback", "--snapshot-every=5")
    ruined = train("--steps=60", "--fault=nan@30,state").summary
    saved = train("--steps=60", "--fault=nan@30,state", "--on-nonfinite=rollback", "--snapshot-every=5")
    assert "rollbacks" not in clean.summary
    assert ruined["held_out_loss"] == "nan", "the control"
    assert saved.summary["rollbacks"] == 1
    assert "went back to the state after step 26: step 32: the loss is not finite" in saved.out
    assert saved.summary["held_out_loss"] == pytest.approx(clean.summary["held_out_loss"], rel=0.05)


def test_stop_ends_the_run_with_its_own_exit_code(tmp_path, environment):
    summary = tmp_path / "json"
    done = subprocess.run([PROGRAM, *TINY, "--steps=40", "--fault=nan@11", "--on-nonfinite=stop", "--json", summary],
                          env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 83, done.stdout + done.stderr
    assert "\nstopped: step 11: a gradient is not finite\n" in done.stdout
    said = json.loads(summary.read_text())
    assert said["steps"] == 11 and isinstance(said["held_out_loss"], float), "its weights are good"
