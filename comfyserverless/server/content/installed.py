"""Find the files of optional packages from the package index: workflow templates, node help, blueprints.

None of them is needed, and none is imported: only their folders are looked at.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache

from comfyserverless.server.disk import resolve_inside

#: Packages that may hold a folder `templates`: the graphs first, then pictures, then the old single package.
_TEMPLATE_PACKAGES = (
    "comfyui_workflow_templates_json",
    "comfyui_workflow_templates_media_image",
    "comfyui_workflow_templates_media_video",
    "comfyui_workflow_templates_media_api",
    "comfyui_workflow_templates_media_other",
    "comfyui_workflow_templates_media_assets_01",
    "comfyui_workflow_templates_media_assets_02",
    "comfyui_workflow_templates",
)
_DOCS_PACKAGE = "comfyui_embedded_docs"
_BLUEPRINTS_PACKAGE = "comfyui_subgraph_blueprints"
TEMPLATES_DISTRIBUTIONS = ("comfyui-workflow-templates", "comfyui-workflow-templates-json")


def package_folder(package: str, name: str) -> str | None:
    """Return a folder of an installed package without importing it; None if it is not there."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        folder = os.path.join(place, name)
        if os.path.isdir(folder):
            return folder
    return None


@cache
def template_folders() -> tuple[str, ...]:
    """Return the folders of the installed template packages."""
    folders = (package_folder(package, "templates") for package in _TEMPLATE_PACKAGES)
    return tuple(folder for folder in folders if folder is not None)


@cache
def docs_folder() -> str | None:
    """Return the folder of the installed node help."""
    return package_folder(_DOCS_PACKAGE, "docs")


@cache
def blueprints_folder() -> str | None:
    """Return the folder of the installed blueprints."""
    return package_folder(_BLUEPRINTS_PACKAGE, "blueprints")


def find_file(folders: tuple[str, ...], name: str) -> str | None:
    """Return the first file of a name below some folders, None if there is none."""
    for folder in folders:
        path = resolve_inside(folder, name)
        if path is not None and os.path.isfile(path):
            return path
    return None
