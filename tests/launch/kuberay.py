"""What tests ask of a file for the KubeRay operator."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import ray
import yaml
from referencing import Registry, Resource


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def crd_errors(document: dict) -> list[str]:
    """Return what KubeRay's CRD of this kind would object to."""
    schemas = {path.name: json.loads(path.read_text()) for path in Path(__file__).parent.glob("*.schema.json")}
    registry = Registry().with_resources((name, Resource.from_contents(schema)) for name, schema in schemas.items())
    schema = schemas[f"{document['kind'].lower()}.schema.json"]
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema, registry=registry)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


def check_cluster(cluster: dict, runs_dir: str) -> None:
    """Check the cluster of a RayJob or a RayService."""
    assert cluster["rayVersion"] == ray.__version__
    pods = [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    for pod in pods:
        (container,) = pod["containers"]
        (mount,) = container["volumeMounts"]
        assert mount["mountPath"] == runs_dir
        assert mount["name"] in [volume["name"] for volume in pod["volumes"]]
        assert container["resources"]["requests"] == container["resources"]["limits"]
    assert len({pod["containers"][0]["image"] for pod in pods}) == 1
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
