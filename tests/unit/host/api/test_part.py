"""What `comfy_api` adds to the catalog of packs."""

from __future__ import annotations

from comfyserverless.core.hosting import Catalog, HostPlan, HostSettings
from comfyserverless.host.api.io.schema import NodeReplace
from comfyserverless.host.api.part import attach
from comfyserverless.host.api.runtime import ComfyAPISync
from comfyserverless.host.parts import PART_MODULES, Parts


def test_catalog_tells_which_classes_packs_renamed_while_they_were_loaded() -> None:
    parts = Parts(HostPlan(HostSettings(base="/b", models="/b/models")))
    attach(parts)
    ComfyAPISync().node_replacement.register(NodeReplace("NewOfThePart", "OldOfThePart"))
    (change,) = parts.loaded
    assert change(Catalog((), {})).replacements["OldOfThePart"][0]["new_node_id"] == "NewOfThePart"
    assert "comfyserverless.host.api.part" in PART_MODULES
