"""Why a run ended, as Prometheus learns it from its last scrape."""

import json
import re
import urllib.request

import pytest
import running

TRAINING = """
import os, signal, sys, time
import torch, gradvane
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""
LINGERS = ("--expect-scraper", "on", "--linger-seconds", "300", "--linger-incident-seconds", "300")


@pytest.mark.parametrize(("ending", "reason"), [
    ("", "finished"), ("raise ValueError('no')", "error"), ("sys.exit(3)", "exit_status"),
    ("raise KeyboardInterrupt", "interrupted"),
    ("try: raise KeyboardInterrupt\nexcept KeyboardInterrupt: sys.exit(1)", "interrupted"),
    ("raise gradvane.TrainingStopped('step 3: the loss is not finite')", "stopped"),
    ("sys.exit(130)", "interrupted"), ("sys.exit(143)", "terminated"),
    ("os.kill(os.getpid(), signal.SIGTERM)\nwhile True: time.sleep(0.01)", "terminated")])
def test_the_last_scrape_has_the_reason(tmp_path, ending, reason):
    script = running.write(tmp_path, TRAINING + ending)
    child = running.start("-m", "gradvane", "run", "--run-dir", tmp_path / "run", *LINGERS, script, cwd=tmp_path)
    try:
        said = ""
        while "waiting" not in said:
            line = child.stderr.readline()
            assert line, said
            said += line
        (endpoint,) = (tmp_path / "run").rglob("endpoint.*json")
        url = json.loads(endpoint.read_text())["url"]
        with urllib.request.urlopen(url.rstrip("/") + "/metrics", timeout=30) as answer:
            metrics = answer.read().decode()
        assert re.findall(r'^gradvane_run_end_info\{.*reason="(\w+)"\} 1$', metrics, re.MULTILINE) == [reason]
        child.communicate(timeout=120)  # the scrape was what it waited for
    finally:
        child.kill()
        child.wait()
