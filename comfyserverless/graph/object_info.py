"""Describe node classes in ComfyUI's `/object_info` shape."""

from __future__ import annotations

from typing import Any

from comfyserverless.graph.choices import Choices
from comfyserverless.graph.declaration import FileCatalog, NodeDeclaration


def describe(declaration: NodeDeclaration, catalog: FileCatalog) -> dict[str, Any]:
    """Return the entry of one class; combos list what they offer at this moment."""
    return describe_with(declaration, Choices(catalog))


def describe_with(declaration: NodeDeclaration, choices: Choices) -> dict[str, Any]:
    """Return the entry of one class; share `choices` among all classes of an answer."""
    if declaration.info is not None:
        return dict(declaration.info)
    inputs = _inputs(declaration, choices)
    info: dict[str, Any] = {
        "input": inputs,
        "input_order": {section: list(entries) for section, entries in inputs.items()},
        "is_input_list": declaration.input_is_list,
        "output": [output.type for output in declaration.outputs],
        "output_is_list": [output.is_list for output in declaration.outputs],
        "output_name": [output.name or output.type for output in declaration.outputs],
        "name": declaration.name,
        "display_name": declaration.display_name or None,
        "description": declaration.description,
        "python_module": declaration.python_module,
        "category": declaration.category,
        "output_node": declaration.output_node,
        "has_intermediate_output": False,
        "search_aliases": [],
    }
    if any(output.tooltip for output in declaration.outputs):
        info["output_tooltips"] = [output.tooltip for output in declaration.outputs]
    if any(output.match for output in declaration.outputs):
        info["output_matchtypes"] = [output.match or None for output in declaration.outputs]
    if declaration.deprecated:
        info["deprecated"] = True
    if declaration.experimental:
        info["experimental"] = True
    if declaration.dev_only:
        info["dev_only"] = True
    return info


def _inputs(declaration: NodeDeclaration, choices: Choices) -> dict[str, dict[str, Any]]:
    """Group the inputs by section; a section without inputs is absent, but `required` is always there."""
    sections: dict[str, dict[str, Any]] = {"required": {}}
    for spec in declaration.inputs:
        sections.setdefault(spec.section, {})[spec.name] = choices.config(spec)
    if declaration.hidden:
        sections["hidden"] = dict(declaration.hidden)
    return sections
