"""Print a bill of materials of the packages of this interpreter, as CycloneDX 1.6."""

import json
import sys
from importlib.metadata import distributions

components = sorted(
    (
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{one.version}",
            "name": name,
            "version": one.version,
            "purl": f"pkg:pypi/{name}@{one.version}",
            **({"licenses": [{"license": {"name": text}}]} if (text := one.metadata.get("License-Expression")) else {}),
        }
        for one in distributions()
        for name in [one.metadata["Name"].lower().replace("_", "-")]
    ),
    key=lambda one: one["name"],
)
document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}
json.dump(document, sys.stdout, indent=1)
