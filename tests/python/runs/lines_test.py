"""What a script that attaches says on the standard error: one line at the start, one at a good end."""

from __future__ import annotations

import functools
import re

import running

SCRIPT = """
    import torch, gradvane
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    gradvane.attach(model, optimizer, run="tiny")
    for step in range(3):
        optimizer.zero_grad()
        (model(torch.ones(2, 4)).sum() * SCALE).backward()
        optimizer.step()
"""
BEGINS = r"gradvane: tiny: http://127\.0\.0\.1:\d+ \(GRADVANE_QUIET=1 hides this line\)"


def said(text: str, tmp_path, **environment: str) -> list[str]:
    script = running.write(tmp_path, text)
    done = running.python(script, cwd=tmp_path, **environment)
    return [line for line in done.stderr.splitlines() if line.startswith("gradvane: ")]


def test_the_address_comes_at_the_start_and_the_outcome_at_the_end(tmp_path):
    first, last = said(SCRIPT.replace("SCALE", "1"), tmp_path)
    assert re.fullmatch(BEGINS, first)
    assert last == "gradvane: tiny ended: 3 steps, no incidents"


def test_a_second_run_of_one_script_says_why_it_has_another_name(tmp_path):
    one = """
        import subprocess, sys, torch, gradvane
        model = torch.nn.Linear(2, 2)
        agent = gradvane.attach(model, torch.optim.SGD(model.parameters(), 0.1), port=0, linger_seconds=0)
        if len(sys.argv) == 1:
            subprocess.run([sys.executable, __file__, "again"], check=True)
        agent.detach()
        """
    script = running.write(tmp_path, one)
    done = running.python(script, cwd=tmp_path, TMPDIR=str(tmp_path))
    first, second = [line for line in done.stderr.splitlines() if "http://" in line]
    assert first.startswith("gradvane: train: http://")
    assert re.fullmatch(r"gradvane: train-\d{8}T\d{6}-[0-9a-f]{4}: http://127\.0\.0\.1:\d+ "
                        r"\(a run with the default name is live already; GRADVANE_QUIET=1 hides this line\)", second)


def test_an_incident_is_counted_and_its_recording_named(tmp_path):
    lines = said(SCRIPT.replace("SCALE", "(float('nan') if step == 1 else 1)"), tmp_path)
    assert re.fullmatch(r"gradvane: tiny ended: 3 steps, 1 incident, gradvane replay \S+\.gvrec", lines[-1])


def test_gradvane_run_says_the_outcome_too_unless_it_is_quiet(tmp_path):
    script = running.write(tmp_path, SCRIPT.replace("SCALE", "1"))
    run = functools.partial(running.python, "-m", "gradvane", "run", script, cwd=tmp_path)
    lines = run().stderr.splitlines()
    assert lines[-1] == "gradvane: tiny ended: 3 steps, no incidents"
    assert sum("http://" in line for line in lines) == 1
    assert "ended" not in run(LOCAL_RANK="1", RANK="1", WORLD_SIZE="2").stderr
    assert run(GRADVANE_QUIET="1").stderr == ""


def test_one_rank_of_a_machine_says_what_is_watched(tmp_path):
    script = running.write(tmp_path, """
        import torch
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        """)
    for rank, times in (("0", 1), ("1", 0)):
        done = running.python("-m", "gradvane", "run", script, cwd=tmp_path, LOCAL_RANK=rank, RANK=rank, WORLD_SIZE="2")
        assert done.stderr.count("watching 2 parameters of Linear") == times, done.stderr


def test_a_block_that_is_left_by_a_good_exit_ends_well(tmp_path):
    text = SCRIPT.replace("SCALE", "1").replace("gradvane.attach(", "agent = gradvane.attach(")
    good, bad, empty = (running.python(running.write(tmp_path, text + f"    with agent: raise SystemExit({code})\n"),
                                       cwd=tmp_path, check=False) for code in ("0", "3", "''"))
    assert (good.returncode, bad.returncode, empty.returncode) == (0, 3, 1)
    assert good.stderr.endswith("\ngradvane: tiny ended: 3 steps, no incidents\n")
    assert "ended" not in bad.stderr + empty.stderr


def test_quiet_says_nothing_and_neither_do_other_ranks_of_a_machine(tmp_path):
    text = SCRIPT.replace("SCALE", "1")
    assert said(text, tmp_path, GRADVANE_QUIET="1") == []
    assert said(text, tmp_path, LOCAL_RANK="1", RANK="1", WORLD_SIZE="2") == []
    assert said(text, tmp_path, OMPI_COMM_WORLD_LOCAL_RANK="1", OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2") == []
    assert said(text, tmp_path, SLURM_LOCALID="1", SLURM_PROCID="1", SLURM_NTASKS="2", SLURM_STEP_ID="0") == []
    assert len(said(text, tmp_path, LOCAL_RANK="0", RANK="0", WORLD_SIZE="2")) == 2


def test_a_script_that_shows_log_messages_gets_them_once(tmp_path):
    text = "    import logging\n    logging.basicConfig(level=logging.INFO, format='gradvane: log: %(message)s')" + SCRIPT
    lines = said(text.replace("SCALE", "1"), tmp_path)
    assert lines and all(line.startswith("gradvane: log: ") for line in lines)
    assert sum("http://" in line for line in lines) == 1


def test_a_closed_standard_error_is_no_reason_to_fail(tmp_path):
    done = running.python(running.write(tmp_path, "    import os; os.close(2)" + SCRIPT.replace("SCALE", "1")), cwd=tmp_path)
    assert done.returncode == 0


def test_a_run_that_fails_has_no_good_end_to_tell_of(tmp_path):
    lines = said(SCRIPT.replace("SCALE", "1") + "    gradvane._agent.live().fail('because')\n", tmp_path)
    assert len(lines) == 1 and re.fullmatch(BEGINS, lines[0])
