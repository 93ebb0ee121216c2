"""The chart helm/gradvane, rendered by real Helm: what it makes, what it refuses, and that what it makes is valid.

`make test-helm` runs it. HELM_BINARIES: helm programs with colons between them. KUSTOMIZE_BINARY: kustomize.
MONITORING_CRDS: a folder with the definitions of Prometheus Operator.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "exporters" / "web"))

from schemas import closed, schemas_in  # noqa: E402
from web_server import Authority, hashed  # noqa: E402

CHART = ROOT / "helm" / "gradvane"
HELMS = [Path(path) for path in os.environ["HELM_BINARIES"].split(":")]
CRDS = Path(os.environ["MONITORING_CRDS"])
SERVERS = Path(os.environ["GRADVANE_SERVERS_DIR"])
OPERATOR = tuple(f"--api-versions=monitoring.coreos.com/{version}/{kind}" for version, kind in (
    ("v1", "PodMonitor"), ("v1", "ServiceMonitor"), ("v1", "PrometheusRule"), ("v1alpha1", "AlertmanagerConfig")))
KUBERNETES = "1.34"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))


def helm(program, *words, check=True):
    # A helm that was not built by its makers takes the cluster for one of version 1.20.
    done = subprocess.run([program, *map(str, words), f"--kube-version={KUBERNETES}"], capture_output=True, text=True, timeout=120, cwd=ROOT)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def rendered(program, *words, values=None):
    given = ["--values", values] if values else []
    done = helm(program, "template", "watch", CHART, "--namespace", "training", *given, *words)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of_kind(objects, kind):
    return [one for one in objects if one["kind"] == kind]


@pytest.fixture(params=HELMS, ids=[path.name for path in HELMS])
def program(request):
    return request.param


@pytest.fixture(scope="module")
def definitions():
    return schemas_in(*(CRDS / f"monitoring.coreos.com_{name}.yaml" for name in (
        "podmonitors", "servicemonitors", "prometheusrules", "alertmanagerconfigs")))


# What it makes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", VALUES, ids=[path.stem for path in VALUES])
def test_lint_has_nothing_to_say(program, values):
    done = helm(program, "lint", "--strict", CHART, "--values", values)
    assert "[WARNING]" not in done.stdout and "[ERROR]" not in done.stdout, done.stdout


@pytest.mark.parametrize("operator", [(), OPERATOR], ids=["no operator", "operator"])
@pytest.mark.parametrize("values", VALUES, ids=[path.stem for path in VALUES])
def test_every_object_is_valid(program, definitions, values, operator):
    objects = rendered(program, *operator, values=values)
    assert objects
    for one in objects:
        group = one["apiVersion"].partition("/")[0]
        if group == "monitoring.coreos.com":
            schema = definitions[one["kind"], one["apiVersion"].partition("/")[2]]
            jsonschema.Draft202012Validator(closed(schema)).validate({"spec": one["spec"]})
        else:
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
    names = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names))


def test_a_misspelt_field_of_the_operator_would_be_found(definitions):
    """The control."""
    bad = {"spec": {"selector": {}, "podMetricsEndpoints": [{"port": "gradvane", "intervall": "15s"}]}}
    with pytest.raises(jsonschema.ValidationError, match="intervall"):
        jsonschema.Draft202012Validator(closed(definitions["PodMonitor", "v1"])).validate(bad)


def test_objects_of_the_operator_come_where_it_is_or_where_they_are_forced(program):
    operators = {"PodMonitor", "PrometheusRule", "ServiceMonitor", "AlertmanagerConfig"}
    kinds = lambda *words: {one["kind"] for one in rendered(program, *words)} & operators  # noqa: E731
    assert kinds() == set()
    assert kinds(*OPERATOR) == {"PodMonitor", "PrometheusRule"}
    assert kinds("--set", "podMonitor.enabled=true") == {"PodMonitor"}
    assert kinds(*OPERATOR, "--set", "podMonitor.enabled=false,prometheusRule.enabled=false") == set()


def test_rules_and_dashboards_are_those_of_the_project(program, tmp_path):
    objects = rendered(program, *OPERATOR)
    rules = {one["metadata"]["name"].rpartition("-")[2]: one["spec"] for one in of_kind(objects, "PrometheusRule")}
    assert set(rules) == {"alerts", "recording"}
    for name, spec in rules.items():
        assert spec == yaml.safe_load((ROOT / f"dashboards/alerts/gradvane-{name}.yaml").read_text())
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(spec))
        done = subprocess.run([SERVERS / "promtool", "check", "rules", file], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    shown = {}
    for one in of_kind(objects, "ConfigMap"):
        if one["metadata"]["labels"].get("grafana_dashboard") == "1":
            shown.update(one["data"])
            assert len(json.dumps(one)) < 1_000_000, "a ConfigMap holds 1 MiB"
    assert shown == {path.name: path.read_text() for path in (ROOT / "dashboards/grafana").glob("*.json")}


def test_the_kustomize_base_makes_the_same_objects_as_the_chart(definitions):
    done = subprocess.run([os.environ["KUSTOMIZE_BINARY"], "build", ROOT / "deploy" / "kustomize"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    objects = [one for one in yaml.safe_load_all(done.stdout) if one]
    for one in objects:
        assert one["metadata"]["labels"]["app.kubernetes.io/name"] == "gradvane" and "namespace" not in one["metadata"]
        if one["kind"] == "ConfigMap":
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
        else:
            schema = definitions[one["kind"], one["apiVersion"].partition("/")[2]]
            jsonschema.Draft202012Validator(closed(schema)).validate({"spec": one["spec"]})

    def short(one):
        return one["kind"], one["metadata"]["name"].removeprefix("watch-").removeprefix("gradvane").removeprefix("-")

    ours = {short(one): one.get("spec") or one["data"] for one in objects}
    theirs = {short(one): one.get("spec") or one["data"] for one in rendered(HELMS[0], *OPERATOR)
              if one["kind"] != "Pod"}  # that of `helm test`
    assert ours.pop(("ConfigMap", "agent")).keys() == theirs.pop(("ConfigMap", "agent")).keys() == {"gradvane.yaml"}
    assert ours == theirs
    shown = [one for one in objects if one["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert len(shown) == len(list((ROOT / "dashboards" / "grafana").glob("*.json"))), "each dashboard is in dashboards/grafana/kustomization.yaml"


def test_the_training_fits_the_restricted_profile(program):
    objects = rendered(program, values=CHART / "ci" / "everything-values.yaml")
    specs = [one["spec"]["template"]["spec"] for one in of_kind(objects, "Job")] + [one["spec"] for one in of_kind(objects, "Pod")]
    assert len(specs) == 2
    for spec in specs:
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
        for container in spec["containers"] + spec.get("initContainers", []):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False and context["capabilities"] == {"drop": ["ALL"]}
            assert "hostPort" not in str(container.get("ports"))
        for volume in spec.get("volumes", []):
            assert set(volume) - {"name"} <= {"configMap", "emptyDir", "secret"}


# What it refuses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "said"), [
    ("podMonitr.enabled=true", "podMonitr"),
    ("podMonitor.enabled=perhaps", "podMonitor"),
    ("podMonitor.interval=15", "interval"),
    ("pods.port=a_port_with_a_long_name", "port"),
    ("pods.namespaces[0]=Training", "namespaces"),
    ("token.secret=Not_A_Name", "secret"),
    ("tests.prometheus=prometheus:9090", "prometheus"),
    ("webConfig.scheme=tls", "scheme"),
    ("podMonitor.enabled=true,webConfig.basicAuth.username.name=a", "webConfig.secret is empty: name the Secret"),
    ("podMonitor.enabled=true,webConfig.secret=web,token.create=true,webConfig.basicAuth.username.name=a", "a scrape can send one of them"),
    ("exampleJob.enabled=true", "exampleJob.image is empty: name an image with torch"),
    ("exampleJob.enabled=true,exampleJob.image=torch,exampleJob.install.enabled=true", "exampleJob.install.image is empty"),
    ("alertmanagerConfig.enabled=true", "alertmanagerConfig.receiver is empty: say where alerts go"),
    ("networkPolicy.enabled=true,pods.namespaces[0]=*", "networkPolicy needs the names of namespaces"),
])
def test_a_bad_value_is_refused_with_its_name(program, words, said):
    done = helm(program, "template", "watch", CHART, "--set", words, check=False)
    assert done.returncode != 0 and said in done.stderr


def test_every_value_is_in_the_schema_and_has_a_word_of_explanation():
    values, schema = yaml.safe_load((CHART / "values.yaml").read_text()), json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator(schema).validate(values)
    assert set(values) == set(schema["properties"]) - {"global"}
    for name, part in values.items():
        assert set(part) == set(schema["properties"][name]["properties"]), name


# What it would run ----------------------------------------------------------------------------------


def test_the_training_runs_here_as_its_pod_would_and_prometheus_scrapes_it(program, tmp_path):
    """The command, the environment and the mounts of the rendered Job as a process of this machine, the monitor's
    endpoint as a scrape job. What only a cluster has is put in: labels, the Secret, the pod's address."""
    objects = rendered(
        program, *OPERATOR, "--set", "agent.config.stall_seconds=77,podMonitor.podTargetLabels={team},"
        "podMonitor.relabelings[0].sourceLabels={__meta_kubernetes_pod_node_name},podMonitor.relabelings[0].targetLabel=node",
        values=CHART / "ci" / "token-values.yaml")
    [job] = of_kind(objects, "Job")
    pod = job["spec"]["template"]
    [container] = pod["spec"]["containers"]
    maps = {one["metadata"]["name"]: one["data"] for one in of_kind(objects, "ConfigMap")}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    places = {}
    for mount in container["volumeMounts"]:
        folder = tmp_path / mount["name"]
        folder.mkdir()
        for name, text in maps.get(volumes[mount["name"]].get("configMap", {}).get("name"), {}).items():
            (folder / name).write_text(text.replace("20_000", "200_000"))
        places[mount["mountPath"]] = str(folder)

    def here(text):
        return re.sub("|".join(map(re.escape, places)), lambda found: places[found[0]], text)

    token, environment = "the-token-of-the-secret", {}
    for row in container["env"]:
        field = row.get("valueFrom", {})
        if "secretKeyRef" in field:
            assert field["secretKeyRef"] == {"name": "gradvane", "key": "token"}
            environment[row["name"]] = token
        elif "fieldRef" in field:
            environment[row["name"]] = {"job-name": "watch-gradvane-example", "controller-uid": "f00d"}[
                field["fieldRef"]["fieldPath"].rpartition("/")[2].rstrip("']")]
        else:
            environment[row["name"]] = here(row["value"])
    gradvane, *words = container["command"]
    assert gradvane == "gradvane"
    python = os.environ["GRADVANE_VENV_PYTHON"]
    process = subprocess.Popen(
        [python, "-m", "gradvane", *map(here, words)], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "GRADVANE_PORT": "0", "TMPDIR": str(tmp_path),
             "PYTHONPATH": os.environ["PYTHONPATH"], **environment})
    try:
        file = wait_for(lambda: next(iter(tmp_path.glob("gradvane-*/*/endpoint.rank0.json")), None), process)
        entry = json.loads(file.read_text())
        assert (entry["run"], entry["run_id"]) == ("watch-gradvane-example", "f00d")
        [monitor] = of_kind(objects, "PodMonitor")
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        assert set(endpoint["authorization"]) == {"credentials"}
        port = entry["url"].rpartition(":")[2]
        (tmp_path / "token").write_text(token)
        [port_name] = [one["name"] for one in container["ports"]]
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [{
            "job_name": "pods", "scrape_interval": "1s", "authorization": {"credentials_file": str(tmp_path / "token")},
            "relabel_configs": relabelings(monitor),
            "static_configs": [
                pod_found(f"127.0.0.1:{port}", "trainer", pod["metadata"]["labels"] | {"team": "red"}, port_name),
                pod_found("127.0.0.1:1", "without-the-label", {"team": "red"}, port_name),
                pod_found("127.0.0.1:2", "another-port", pod["metadata"]["labels"], "http")]}]}))
        server = subprocess.Popen([SERVERS / "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
                                   "--web.listen-address=127.0.0.1:19990"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            found = wait_for(lambda: asked('gradvane_steps_total{run="watch-gradvane-example"} > 0'), process)
            wanted = {"job": "training/watch-gradvane", "namespace": "training", "pod": "trainer", "container": "trainer", "endpoint": port_name,
                      "team": "red", "node": "node-of-trainer"}
            assert wanted.items() <= found[0]["metric"].items()
            assert len(asked("up")) == 1, "only the pod that the monitor chooses"
        finally:
            server.kill()
            server.wait()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/v1/status", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            settings = {row["key"]: row["value"] for row in json.load(answer)["process"]["settings"]}
        assert settings["stall_seconds"] == "77", "the ConfigMap is read"
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_training_with_a_web_config_runs_as_its_pod_would_and_is_scraped_as_the_monitor_says(program, tmp_path):
    """As above, with the Secret's files in place of the mount."""
    objects = rendered(program, *OPERATOR, values=CHART / "ci" / "web-config-values.yaml")
    [job] = of_kind(objects, "Job")
    spec = job["spec"]["template"]["spec"]
    [container] = spec["containers"]
    environment = {row["name"]: row.get("value", "") for row in container["env"]}
    assert "GRADVANE_INSECURE" not in environment and "GRADVANE_TOKEN" not in environment
    [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == "web"]
    assert environment["GRADVANE_WEB_CONFIG"] == f"{mount['mountPath']}/web.yml"
    assert {"name": "web", "secret": {"secretName": "gradvane-web", "defaultMode": 0o440}} in spec["volumes"]
    ca = Authority(tmp_path)
    ca.issue("server", "DNS:gradvane")
    ca.issue("client")
    (tmp_path / "web.yml").write_text(
        "tls_server_config: {cert_file: server.crt, key_file: server.key, client_auth_type: RequireAndVerifyClientCert, "
        f"client_ca_file: ca.crt}}\nbasic_auth_users: {{scrape: '{hashed('right')}'}}\n")
    script = next(one["data"]["train.py"] for one in of_kind(objects, "ConfigMap") if "train.py" in one["data"])
    (tmp_path / "train.py").write_text(script.replace("20_000", "200_000"))
    process = subprocess.Popen(
        [os.environ["GRADVANE_VENV_PYTHON"], "-m", "gradvane", "run", "train.py"], cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "GRADVANE_PORT": "0", "TMPDIR": str(tmp_path), "GRADVANE_RUN": "web",
             "PYTHONPATH": os.environ["PYTHONPATH"], "GRADVANE_ADDRESS": "0.0.0.0", "GRADVANE_WEB_CONFIG": str(tmp_path / "web.yml")})
    try:
        file = wait_for(lambda: next(iter(tmp_path.glob("gradvane-*/*/endpoint.rank0.json")), None), process)
        port = json.loads(file.read_text())["url"].rpartition(":")[2]
        [monitor] = of_kind(objects, "PodMonitor")
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        assert set(endpoint["tlsConfig"]) == {"ca", "cert", "keySecret", "serverName"} and "authorization" not in endpoint
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [{
            "job_name": "pods", "scrape_interval": "1s", "scheme": endpoint["scheme"],
            "tls_config": {"ca_file": "ca.crt", "cert_file": "client.crt", "key_file": "client.key",
                           "server_name": endpoint["tlsConfig"]["serverName"]},
            "basic_auth": {"username": "scrape", "password": "right"},
            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}))
        server = subprocess.Popen([SERVERS / "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
                                   "--web.listen-address=127.0.0.1:19990"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert wait_for(lambda: asked('gradvane_steps_total{run="web"} > 0'), process)
        finally:
            server.kill()
            server.wait()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def pod_found(address, name, labels, port):
    """As Prometheus' service discovery describes a pod."""
    known = {"namespace": "training", "pod_name": name, "pod_phase": "Running", "pod_node_name": f"node-of-{name}",
             "pod_container_name": "trainer", "pod_container_port_name": port}
    for key, value in labels.items():
        known[f"pod_label_{key}"], known[f"pod_labelpresent_{key}"] = value, "true"
    return {"targets": [address], "labels": {f"__meta_kubernetes_{key}": value for key, value in known.items()}}


def relabelings(monitor):
    """What Prometheus Operator makes of a PodMonitor: its choice of pods, its labels, then the monitor's own relabelings."""
    spec, meta = monitor["spec"], monitor["metadata"]
    [endpoint] = spec["podMetricsEndpoints"]
    found = "__meta_kubernetes_"
    rows = [{"source_labels": [found + "pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop"}]
    for key, value in spec["selector"]["matchLabels"].items():
        rows.append({"source_labels": [f"{found}pod_label_{key}", f"{found}pod_labelpresent_{key}"], "regex": f"({value});true", "action": "keep"})
    rows.append({"source_labels": [found + "pod_container_port_name"], "regex": endpoint["port"], "action": "keep"})
    for source, target in (("namespace", "namespace"), ("pod_container_name", "container"), ("pod_name", "pod"),
                           *((f"pod_label_{label}", label) for label in spec.get("podTargetLabels", []))):
        rows.append({"source_labels": [found + source], "target_label": target})
    rows.append({"target_label": "job", "replacement": f"{meta['namespace']}/{meta['name']}"})
    rows.append({"target_label": "endpoint", "replacement": endpoint["port"]})
    for own in endpoint.get("relabelings", []):
        rows.append({re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), key): value for key, value in own.items()})
    return rows


def asked(query):
    try:
        with urllib.request.urlopen("http://127.0.0.1:19990/api/v1/query?query=" + urllib.request.quote(query), timeout=5) as answer:
            return json.load(answer)["data"]["result"]
    except OSError:
        return []


def wait_for(condition, process, seconds=60):
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.1)
    return found
