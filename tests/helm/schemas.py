"""Definitions of custom resources, as schemas."""

from pathlib import Path

import yaml


class Loader(yaml.SafeLoader):
    """For `=`, which YAML 1.1 has a meaning for."""


Loader.add_constructor("tag:yaml.org,2002:value", Loader.construct_yaml_str)


def schemas_in(*files: Path):
    """The schema of each kind and version."""
    found = {}
    for file in files:
        definition = yaml.load(file.read_text(), Loader)
        for version in definition["spec"]["versions"]:
            found[definition["spec"]["names"]["kind"], version["name"]] = version["schema"]["openAPIV3Schema"]
    return found


def closed(schema):
    """The spec of a definition, where a misspelt field is an error: the cluster would drop it without a word."""
    def close(part):
        if isinstance(part, dict):
            part = {key: close(value) for key, value in part.items()}
            if "properties" in part and "additionalProperties" not in part and not part.get("x-kubernetes-preserve-unknown-fields"):
                part["additionalProperties"] = False
            return part
        return [close(value) for value in part] if isinstance(part, list) else part
    return {"type": "object", "properties": {"spec": close(schema["properties"]["spec"])}, "required": ["spec"]}
