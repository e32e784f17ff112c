"""Import lines as packs write them at the top of their files: one that fails costs its pack everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pack_modules import module, pack_modules

LINES = """
from folder_paths import cache_helper, CacheHelper, extension_mimetypes_cache, get_public_user_directory
from folder_paths import get_system_user_directory
from comfy.model_management import NUM_STREAMS, get_supported_float8_types, is_wsl, get_offload_stream
from comfy.model_management import synchronize, pytorch_attention_enabled_vae, sync_stream
from comfy.clip_model import CLIPVision, CLIPTextModel, CLIPTextModel_
from comfy.float import stochastic_rounding
from comfy.rmsnorm import rms_norm
from comfy.image_encoders.dino2 import Dinov2Model
from comfy.extra_samplers import uni_pc
from comfy.k_diffusion import deis, sa_solver, sampling, utils
from comfy.k_diffusion.utils import append_dims
import comfy.t2i_adapter.adapter, comfy.gligen, comfy.diffusers_load, comfy.diffusers_convert
import comfy.lora_convert
from comfy_execution.caching import BasicCache, CacheKeySetID, HierarchicalCache, LRUCache
from comfy_execution.graph import ExecutionList, TopologicalSort, get_input_info
from comfy_execution.progress import NodeState, ProgressHandler, WebUIProgressHandler, add_progress_handler
from comfyui_version import __version__
from utils.json_util import merge_json_recursive
import comfyui_version, cuda_malloc
from comfy.sd1_clip import token_weights, escape_important, unescape_important, parse_parentheses, SDTokenizer
""".strip().splitlines()


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pack_modules(tmp_path_factory.mktemp("server")) as bridge:
        bridge.answers["object_info"] = {}
        yield


@pytest.mark.parametrize("line", LINES)
def test_line_can_be_imported(line: str) -> None:
    exec(line, {})


@pytest.mark.parametrize("name", ["comfy.nothing", "comfy_execution.nothing", "utils.nothing"])
def test_what_comfyui_lacks_too_is_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        exec(f"import {name}", {})


def test_class_of_a_module_without_a_file_refuses_by_name() -> None:
    with pytest.raises(NotImplementedError, match=r"comfy\.clip_model\.CLIPVision"):
        module("comfy.clip_model").CLIPVision()


def test_declared_inputs_are_found_by_name() -> None:
    class Node:
        @classmethod
        def INPUT_TYPES(cls) -> dict[str, object]:
            return {
                "required": {"a": ("INT", {"min": 1})},
                "optional": {"b": ("MASK",)},
                "hidden": {"c": "PROMPT"},
            }

    look_up = module("comfy_execution.graph").get_input_info
    assert look_up(Node, "a") == ("INT", "required", {"min": 1})
    assert look_up(Node, "b") == ("MASK", "optional", {})
    assert look_up(Node, "c") == ("PROMPT", "hidden", {})
    assert look_up(Node, "d") == (None, None, None)


def test_names_of_users_do_not_lead_out_of_their_folder() -> None:
    paths = module("folder_paths")
    assert paths.get_public_user_directory("me") == f"{paths.user_directory}/me"
    assert paths.get_public_user_directory("__system") is None
    with pytest.raises(ValueError, match="outside"):
        paths.get_public_user_directory("../../x")
    assert paths.get_system_user_directory("packs") == f"{paths.user_directory}/__packs"
    with pytest.raises(ValueError, match="no name"):
        paths.get_system_user_directory("../x")


def test_prompts_are_weighted_with_comfyuis_functions() -> None:
    clip = module("comfy.sd1_clip")
    hidden = clip.escape_important("a (b:1.5) \\(c\\)")
    runs = [(clip.unescape_important(text), weight) for text, weight in clip.token_weights(hidden, 2.0)]
    assert runs == [("a ", 2.0), ("b", 1.5), (" (c)", 2.0)]
    assert clip.parse_parentheses("a (b (c)) d") == ["a ", "(b (c))", " d"]


def test_samplers_of_packs_count_their_steps_with_our_bars() -> None:
    sampling = module("comfy.k_diffusion.sampling")
    assert list(sampling.trange(3, disable=True)) == [0, 1, 2]


def test_loaders_that_the_server_lacks_declare_their_inputs() -> None:
    nodes = module("nodes")
    (Path(module("folder_paths").get_folder_paths("clip_vision")[-1])).mkdir(parents=True, exist_ok=True)
    assert nodes.CLIPVisionLoader.INPUT_TYPES()["required"]["clip_name"] == ([],)
