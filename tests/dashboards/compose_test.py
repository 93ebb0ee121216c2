"""deploy/compose.yaml and what it mounts, as far as can be said without containers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import yaml

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
SERVERS = Path(os.environ["GRADVANE_SERVERS_DIR"])
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def mounts(service: str) -> dict[str, Path]:
    """Path in the container -> file or folder here."""
    found = {}
    for volume in COMPOSE["services"][service]["volumes"]:
        source, inside, *mode = volume.split(":")
        if source.startswith("."):
            assert mode == ["ro"], volume
            found[inside] = (DEPLOY / source).resolve()
        else:
            assert source in COMPOSE["volumes"], volume
    return found


def test_what_is_mounted_exists():
    for service in COMPOSE["services"]:
        for path in mounts(service).values():
            assert path.exists(), path


def test_images_have_a_version_and_ports_stay_on_this_machine():
    assert set(COMPOSE["services"]) == {"prometheus", "alertmanager", "grafana"}
    for service in COMPOSE["services"].values():
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), service["image"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_every_program_reads_a_configuration_that_is_mounted():
    for name in ("prometheus", "alertmanager"):
        (path,) = [part.partition("=")[2] for part in COMPOSE["services"][name]["command"]
                   if part.startswith("--config.file=")]
        assert mounts(name)[path].is_file()


def test_prometheus_takes_its_configuration_with_the_shipped_rules(tmp_path):
    config = mounts("prometheus")["/etc/prometheus/prometheus.yaml"]
    rules = mounts("prometheus")["/etc/prometheus/rules"]
    assert sorted(path.name for path in rules.glob("*.yaml")) == ["gradvane-alerts.yaml", "gradvane-recording.yaml"]
    there = tmp_path / "prometheus.yaml"
    there.write_text(config.read_text().replace("/etc/prometheus/rules", str(rules)))
    done = subprocess.run([SERVERS / "promtool", "check", "config", there], capture_output=True, text=True, timeout=60)
    written = sum(path.read_text().count("expr:") for path in rules.glob("*.yaml"))
    assert done.returncode == 0 and f"{written} rules" in re.sub(r"(\d+) rules", sum_of_rules(done.stdout), done.stdout), (
        done.stdout + done.stderr)


def sum_of_rules(said: str) -> str:
    return f"{sum(int(count) for count in re.findall(r'([0-9]+) rules found', said))} rules"


def test_alertmanager_takes_its_configuration(tmp_path):
    there = shutil.copy(mounts("alertmanager")["/etc/alertmanager/alertmanager.yaml"], tmp_path)
    done = subprocess.run([SERVERS / "amtool", "check-config", there], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_servers_find_each_other():
    config = yaml.safe_load(mounts("prometheus")["/etc/prometheus/prometheus.yaml"].read_text())
    (target,) = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    assert target.split(":")[0] in COMPOSE["services"]
    source = yaml.safe_load(mounts("grafana")["/etc/grafana/provisioning/datasources/gradvane.yaml"].read_text())
    (prometheus,) = source["datasources"]
    assert re.fullmatch(r"http://prometheus:9090", prometheus["url"])
    assert prometheus["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]


def test_grafana_looks_where_the_dashboards_are_mounted():
    provider = yaml.safe_load(mounts("grafana")["/etc/grafana/provisioning/dashboards/gradvane.yaml"].read_text())
    folder = mounts("grafana")[provider["providers"][0]["options"]["path"]]
    assert [path.name for path in sorted(folder.glob("*.json"))] == [f"gradvane-{name}.json" for name in (
        "compare", "fleet", "gradients", "overview", "stability", "syncs")]


def test_grafana_is_of_the_version_whose_schema_the_dashboards_have():
    """Schema 41 came with 12.0."""
    assert re.search(r":12\.0\.\d+$", COMPOSE["services"]["grafana"]["image"])


def test_it_says_that_it_was_not_run():
    assert "was not run" in (DEPLOY / "compose.yaml").read_text()
    assert "was not run" in (ROOT / "docs" / "alerts.md").read_text()


def test_grafana_does_not_start_with_a_password_that_everyone_knows():
    password = COMPOSE["services"]["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"]
    assert password.startswith("${GRAFANA_ADMIN_PASSWORD:?"), "docker compose refuses to start without it"
