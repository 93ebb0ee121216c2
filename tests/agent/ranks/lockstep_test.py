"""C++ programs on several processes: what one rank sees decides for all of them, at the same step."""

import json
import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(os.environ["GRADVANE_BIN_DIR"]) / "lockstep_program"


def run(folder: Path, ranks: int, what: str, patience: int = 60, status: int = 0) -> list[dict]:
    folder.mkdir(exist_ok=True)
    processes = []
    for rank in range(ranks):
        environment = {**os.environ, "GRADVANE_RUN_DIR": str(folder / f"run{rank}")}
        processes.append(subprocess.Popen([PROGRAM, str(rank), str(ranks), folder / "store", what, str(patience)],
                                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    said = []
    for rank, process in enumerate(processes):
        output, errors = process.communicate(timeout=240)
        if rank == 1 and status:
            assert process.returncode == status
            continue
        assert process.returncode == 0, errors
        said.append({**json.loads(output), "log": errors})
    return said


def lines_about(rank: dict, words: str) -> list[str]:
    return [line for line in rank["log"].splitlines() if words in line]


@pytest.mark.parametrize(("what", "gathers"), [
    ("skip", 3),  # to find each other; then they meet in shared memory
    ("two nodes", 5),  # the same, and the leaders then have a gather of their own
    ("only the gather of all, two nodes", 1 + 12),
])
def test_a_loss_that_one_rank_alone_sees_is_bad_leaves_the_step_out_on_all_four_and_names_the_rank(tmp_path, what, gathers):
    ranks = run(tmp_path, 4, what)
    for rank in ranks:
        assert rank["gathers"] == gathers
        assert (rank["left_out"], rank["skipped"]) == ([6], 1)
        (line,) = lines_about(rank, "on all ranks")
        assert line.endswith("step 6: skip on all ranks; rank 3 is the first whose own loss is not finite")
    assert len({rank["weights"] for rank in ranks}) == 1


@pytest.mark.parametrize(("what", "origin"), [
    ("gradient, looked at", "rank 2 is the first whose own gradient is not finite, of 3.weight at element 5"),
    ("gradient", "which rank it came from is not known"),
    ("accumulate", "rank 2 is the first whose own loss is not finite, in micro-step 2"),
])
def test_the_log_says_which_rank_gradient_element_and_micro_step_it_comes_from_as_far_as_is_known(tmp_path, what, origin):
    for rank in run(tmp_path, 3, what):
        assert rank["left_out"] == [6]
        (line,) = lines_about(rank, "on all ranks")
        assert line.endswith(f"step 6: skip on all ranks; {origin}")


def test_without_agreement_no_rank_leaves_it_out(tmp_path):
    """The control: each has its own loss, and gradients are fine."""
    assert [rank["left_out"] for rank in run(tmp_path, 2, "off")] == [[], []]


def test_all_ranks_go_back_to_where_a_run_without_the_bad_batch_is(tmp_path):
    plain = run(tmp_path / "plain", 2, "without")
    back = run(tmp_path / "back", 2, "rollback")
    assert len({rank["weights"] for rank in plain + back}) == 1


@pytest.mark.parametrize(("what", "status", "why"), [("left", 0, "rank 1 has left"), ("killed", 3, "rank 1 has left")])
def test_a_rank_that_does_not_come_any_more_ends_the_agreement_and_the_others_train_on(tmp_path, what, status, why):
    for rank in run(tmp_path, 2, what, status=status)[:1]:
        assert any(why in line for line in lines_about(rank, "do not agree")), rank["log"]


def test_one_flipped_bit_of_one_rank_is_an_incident_on_all_that_names_rank_and_parameter(tmp_path):
    for rank in run(tmp_path, 4, "flip"):
        (line,) = lines_about(rank, "other weights")
        assert "rank 2 has other weights than rank 0; 3.weight is the first that differs." in line
