"""Write a text to a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comfyserverless.functions.host import HostFn


class TextSave(HostFn):
    """Write a text as a file of its own."""

    name = "text.save"
    takes = "text directory stem metadata"
    gives = "files"

    def execute(self, components: Mapping[str, Any], **inputs: Any) -> Mapping[str, Any]:
        """Write `{stem}_0.part` in UTF-8 and return its path in a list; a text has no place for metadata."""
        directory = Path(inputs["directory"])
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{inputs['stem']}_0.part"
        path.write_bytes(inputs["text"].encode("utf-8", "surrogatepass"))
        return {"files": [str(path)]}
