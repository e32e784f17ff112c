"""Describe a schema in ComfyUI's `/object_info` shape."""

from __future__ import annotations

from typing import Any

from comfyserverless.host.api.io.base import plain
from comfyserverless.host.api.io.schema import Schema


def object_info(schema: Schema, python_module: str) -> dict[str, Any]:
    """Return the entry of a class; dynamic inputs are described by their templates, not expanded."""
    inputs: dict[str, dict[str, Any]] = {
        section: {name: [kind, plain(options)] for name, (kind, options) in entries.items()}
        for section, entries in schema.sections().items()
    }
    if schema.hidden:
        inputs["hidden"] = {name: [tag] for name, tag in schema.hidden_tags().items()}
    return {
        "input": inputs,
        "input_order": {section: list(entries) for section, entries in inputs.items()},
        "is_input_list": bool(schema.is_input_list),
        **_outputs(schema),
        "name": schema.node_id,
        "display_name": schema.display_name,
        "description": schema.description or "",
        "python_module": python_module,
        "category": schema.category,
        "output_node": bool(schema.is_output_node),
        "deprecated": bool(schema.is_deprecated),
        "experimental": bool(schema.is_experimental),
        "dev_only": bool(schema.is_dev_only),
        "api_node": bool(schema.is_api_node),
        "has_intermediate_output": bool(schema.has_intermediate_output),
        "search_aliases": list(schema.search_aliases),
        **_extras(schema),
    }


def _outputs(schema: Schema) -> dict[str, Any]:
    outputs = schema.outputs
    entry: dict[str, Any] = {
        "output": [output.get_io_type() for output in outputs],
        "output_is_list": [bool(output.is_output_list) for output in outputs],
        "output_name": [output.display_name or str(output.io_type) for output in outputs],
    }
    if any(output.tooltip for output in outputs):
        entry["output_tooltips"] = [output.tooltip or "" for output in outputs]
    templates = [getattr(output, "template", None) for output in outputs]
    if any(template is not None for template in templates):
        entry["output_matchtypes"] = [template and template.template_id for template in templates]
    return entry


def _extras(schema: Schema) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if schema.essentials_category:
        extras["essentials_category"] = schema.essentials_category
    if schema.price_badge is not None:
        extras["price_badge"] = schema.price_badge.as_dict(schema.inputs)
    return extras
