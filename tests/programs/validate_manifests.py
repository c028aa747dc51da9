"""Validates the Kubernetes objects of a folder against published schemas.

  validate_manifests.py FOLDER

Core objects by kubernetes-validate, strict: an unknown key is an error. A
JobSet by the models of the JobSet API (v1alpha2) in kubeflow-trainer-api, which
drop unknown keys: what comes back must be what went in. The pods of a JobSet
are validated as those of a Job, too. Prints one line an object.
"""
import pathlib
import sys

import kubernetes_validate
import yaml
from kubeflow_trainer_api import models

VERSION = "1.30"


def validate_jobset(item):
    known = models.JobsetV1alpha2JobSet.from_dict(item).to_dict()
    if known != item:
        sys.exit(f"the JobSet has keys that the API lacks:\n{item}\n{known}")
    for job in item["spec"]["replicatedJobs"]:
        kubernetes_validate.validate(
            {"apiVersion": "batch/v1", "kind": "Job",
             "metadata": {"name": job["name"]}, "spec": job["template"]["spec"]},
            VERSION, strict=True)


for file in sorted(pathlib.Path(sys.argv[1]).glob("*.yaml")):
    for item in yaml.safe_load_all(file.read_text()):
        if item["kind"] == "JobSet":
            validate_jobset(item)
        else:
            kubernetes_validate.validate(item, VERSION, strict=True)
        print(item["kind"], item["metadata"]["name"])
