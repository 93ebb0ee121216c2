"""A real Prometheus finds live runs through `gradvane sd`, by file and by HTTP; and the configurations of
docs/prometheus.md are valid."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prometheus_test import SOURCE
from real_prometheus import SERVERS, RealPrometheus
from stack.processes import wait_for
from training_run import TrainingRun

PACKAGE = Path(os.environ["GRADVANE_BUILD_DIR"]) / "python"
pytestmark = pytest.mark.skipif(not (PACKAGE / "gradvane").is_dir(), reason="the Python package was not built")


def start(folder, *words, **how):
    return subprocess.Popen([sys.executable, "-m", "gradvane", "sd", "--dir", folder, *words], cwd=folder,
                            env={**os.environ, "PYTHONPATH": str(PACKAGE)}, **how)


def wait_for_runs(server, job, runs):
    """Until the targets that a discovery has found and that are up are of these runs."""
    wait_for(lambda: {result["metric"]["found_run"] for result in server.query(f'gradvane_world_size{{job="{job}"}}')} == runs,
             f"the runs {runs} of {job}", 90, server)


def test_prometheus_finds_runs_that_come_and_go_by_file_and_by_http(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    watch = start(tmp_path, "--out", tmp_path / "targets.json", "--watch", "0.5")
    serve = start(tmp_path, "--http", "0", stderr=subprocess.PIPE, text=True)
    http = re.search(r"http://\S+/", serve.stderr.readline())[0]
    relabel = [{"source_labels": ["__meta_gradvane_run"], "regex": "sd-.*", "action": "keep"},
               {"source_labels": ["__meta_gradvane_run"], "target_label": "found_run"}]
    configs = [
        {"job_name": "file", "relabel_configs": relabel,
         "file_sd_configs": [{"files": [str(tmp_path / "targets.json")], "refresh_interval": "1s"}]},
        {"job_name": "http", "relabel_configs": relabel, "http_sd_configs": [{"url": http, "refresh_interval": "1s"}]}]
    try:
        with RealPrometheus(tmp_path, configs) as server:
            with TrainingRun(folders[0], GRADVANE_RUN="sd-one", GRADVANE_LINGER_SECONDS="0"):
                with TrainingRun(folders[1], GRADVANE_RUN="sd-two", GRADVANE_LINGER_SECONDS="0"):
                    for job in ("file", "http"):
                        wait_for_runs(server, job, {"sd-one", "sd-two"})
                for job in ("file", "http"):
                    wait_for_runs(server, job, {"sd-one"})
        for process in (watch, serve):
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
    finally:
        for process in (watch, serve):
            process.kill()
            process.wait()


# ---- the document ------------------------------------------------------------------------------------


def blocks():
    text = (SOURCE / "docs" / "prometheus.md").read_text()
    return re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)


# Debian's Prometheus is built without Kubernetes; all else of that block is checked.
KUBERNETES, INSTEAD = "kubernetes_sd_configs: [{role: pod}]", "file_sd_configs: [{files: [pods.json]}]"
CONFIGURATIONS = [block for block in blocks() if block.startswith("# prometheus.yml\n")]


@pytest.mark.parametrize("text", CONFIGURATIONS, ids=[str(i) for i in range(len(CONFIGURATIONS))])
def test_promtool_takes_the_configurations_of_the_document(tmp_path, text):
    def checked(text):
        (tmp_path / "prometheus.yml").write_text(text)
        return subprocess.run([SERVERS / "promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True,
                              text=True, timeout=60)

    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    text = text.replace(KUBERNETES, INSTEAD).replace("/etc/prometheus/gradvane.token", str(token))
    done = checked(text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert checked(text.replace("job_name", "job_nam")).returncode != 0, "a wrong word is found"


def test_the_other_blocks_of_the_document_are_yaml():
    others = [yaml.safe_load(block) for block in blocks() if block not in CONFIGURATIONS]
    assert sum(KUBERNETES in block for block in CONFIGURATIONS) == 1
    assert len(CONFIGURATIONS) == 6
    task, pod, monitor = others
    assert "-m gradvane run" in task["run"]
    [container] = pod["containers"]
    assert {row["name"] for row in container["env"]} == {"GRADVANE_ADDRESS", "GRADVANE_TOKEN", "GRADVANE_RUN", "GRADVANE_RUN_ID"}
    assert monitor["kind"] == "PodMonitor"
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == container["ports"][0]["name"]
