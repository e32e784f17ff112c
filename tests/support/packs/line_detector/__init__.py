"""A preprocessor in the manner of ControlNet packs: a torch model of its own, from its own model folder."""

import os

import folder_paths

from .nodes import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS

folder_paths.add_model_folder_path("line_detectors", os.path.join(folder_paths.models_dir, "line_detectors"))
folder_paths.folder_names_and_paths["line_detectors"][1].update(folder_paths.supported_pt_extensions)

__all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS"]
