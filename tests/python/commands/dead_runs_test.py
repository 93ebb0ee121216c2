"""What commands must not touch: the ports that dead runs had, and files that are none."""

import json
import os
import time

from find_runs_test import endpoint_file, found_in, gradvane

from gradvane.cli import live_runs


def test_the_token_of_a_dead_run_is_shown_to_nobody(tmp_path, monkeypatch):
    """Its port may be another's by now."""
    kept = {}
    monkeypatch.setattr(live_runs, "remember_token", kept.__setitem__)
    url = endpoint_file(tmp_path, token="secret") and "http://127.0.0.1:9"
    assert found_in(monkeypatch, tmp_path) and kept[url] == "secret"
    kept.clear()
    for changed in ({"pid": 2**22 - 1}, {"pid": 2**22 - 1, "state": "finished"}, {"started": time.time() - 7 * 24 * 3600}):
        endpoint_file(tmp_path, token="secret", **changed)
        assert found_in(monkeypatch, tmp_path) == [] and not kept


def test_sd_replaces_no_device_and_what_a_link_leads_to_but_not_the_link(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    answer = gradvane(tmp_path, "sd", "--out", "pipe", check=False)
    assert answer.returncode != 0 and "not a regular file" in answer.stderr and pipe.is_fifo()
    (tmp_path / "link").symlink_to(tmp_path / "targets.json")
    gradvane(tmp_path, "sd", "--out", "link")
    assert (tmp_path / "link").is_symlink() and isinstance(json.loads((tmp_path / "targets.json").read_text()), list)
