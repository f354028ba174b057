"""Validates an OpenAPI document against the schema of OpenAPI 3.1, and answers against the document.

Standard input: {"document": ..., "answers": [{"method", "path", "status", "media", "body"}]}.
Standard output: a line for each problem.
"""

import importlib.util
import json
import pathlib
import sys

from jsonschema_rs import Draft202012Validator

# The package itself needs others, its schema does not.
package = pathlib.Path(importlib.util.find_spec("openapi_spec_validator").origin).parent
schema = json.loads((package / "resources/schemas/v3.1/schema.json").read_text())
given = json.load(sys.stdin)
document = given["document"]
for error in Draft202012Validator(schema).iter_errors(document):
    print(f"document {error.instance_path}: {error.message}")
for answer in given["answers"]:
    method, path, status = answer["method"], answer["path"], str(answer["status"])
    content = document["paths"][path][method]["responses"][status]["content"]
    of_body = {**content[answer["media"]]["schema"], "components": document["components"]}
    for error in Draft202012Validator(of_body).iter_errors(answer["body"]):
        print(f"{method} {path} {status} {error.instance_path}: {error.message}")
