"""The objects that docs/kubernetes.md shows, against the definitions of those who made their kinds; deploy/Dockerfile.

`make test-helm` runs it. JOBSET_CRDS and TRAINER_CRDS: folders with the definitions of JobSet and of Kubeflow's Trainer.
HADOLINT: the program.
"""

import os
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml
from schemas import closed, schemas_in

DOCS = Path(__file__).resolve().parents[2] / "docs" / "kubernetes.md"


@pytest.fixture(scope="module")
def definitions():
    return schemas_in(Path(os.environ["JOBSET_CRDS"]) / "jobset.x-k8s.io_jobsets.yaml",
                      *(Path(os.environ["TRAINER_CRDS"]) / f"trainer.kubeflow.org_{name}.yaml" for name in ("trainingruntimes", "trainjobs")))


def shown():
    """By kind."""
    blocks = re.findall(r"```yaml\n(apiVersion:.*?)```", DOCS.read_text(), re.DOTALL)
    return {one["kind"]: one for block in blocks for one in yaml.safe_load_all(block)}


@pytest.mark.parametrize("kind", ["JobSet", "TrainingRuntime", "TrainJob"])
def test_what_is_shown_is_valid(definitions, kind):
    one = shown()[kind]
    schema = closed(definitions[kind, one["apiVersion"].partition("/")[2]])
    jsonschema.Draft202012Validator(schema).validate({"spec": one["spec"]})
    one["spec"]["replicas"] = 1
    with pytest.raises(jsonschema.ValidationError, match="replicas"):
        jsonschema.Draft202012Validator(schema).validate({"spec": one["spec"]})


@pytest.mark.parametrize("kind", ["JobSet", "TrainingRuntime"])
def test_pods_are_those_that_the_chart_looks_for(kind):
    values = yaml.safe_load((DOCS.parents[1] / "helm" / "gradvane" / "values.yaml").read_text())["pods"]
    spec = shown()[kind]["spec"]
    [job] = (spec["template"]["spec"] if kind == "TrainingRuntime" else spec)["replicatedJobs"]
    pod = job["template"]["spec"]["template"]
    [container] = pod["spec"]["containers"]
    assert values["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert [port["name"] for port in container["ports"]] == [values["port"]]
    assert {"GRADVANE_ADDRESS", "GRADVANE_RUN", "GRADVANE_RUN_ID", "GRADVANE_TOKEN"} <= {row["name"] for row in container["env"]}


def test_the_dockerfile_has_nothing_to_be_said_of():
    file = (DOCS.parents[1] / "deploy" / "Dockerfile").read_text()

    def said(text):
        return subprocess.run([os.environ["HADOLINT"], "-"], input=text, capture_output=True, text=True, timeout=60).stdout

    assert said(file) == ""
    assert "DL3006" in said(file.replace("busybox:1.37", "busybox")), "the control"
