"""`folder_paths` as packs use it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyserverless.core.hosting import Catalog, FolderInfo
from tests.support.pack_modules import RememberingBridge, another_tenant, module, pack_modules


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[RememberingBridge]:
    with pack_modules(tmp_path) as bridge:
        yield bridge


@pytest.fixture
def paths(bridge: RememberingBridge) -> Any:
    return module("folder_paths")


def add(path: Path, content: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_files_are_listed_below_all_paths_by_extension(paths: Any, tmp_path: Path) -> None:
    models = tmp_path / "models"
    for name in ("clip/b.safetensors", "text_encoders/sub/a.PT", "text_encoders/notes.txt", "clip/.git/c.pt"):
        add(models / name)
    assert paths.get_filename_list("text_encoders") == ["b.safetensors", "sub/a.PT"]
    assert paths.get_filename_list("clip") == ["b.safetensors", "sub/a.PT"]


def test_a_new_file_shows_up_and_each_list_is_a_fresh_one(paths: Any, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "loras"
    add(folder / "a.pt")
    paths.get_filename_list("loras").append("changed")
    assert paths.get_filename_list("loras") == ["a.pt"]
    add(folder / "b.pt")
    os.utime(folder, (1, 1))
    assert paths.get_filename_list("loras") == ["a.pt", "b.pt"]


def test_list_is_kept_until_its_key_is_taken_out_of_the_cache(paths: Any, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "vae"
    add(folder / "a.pt")
    os.utime(folder, (1, 1))
    paths.get_filename_list("vae")
    add(folder / "b.pt")
    os.utime(folder, (1, 1))
    assert paths.get_filename_list("vae") == ["a.pt"]
    del paths.filename_list_cache["vae"]
    assert paths.get_filename_list("vae") == ["a.pt", "b.pt"]


def test_unknown_keys_raise_or_give_none(paths: Any) -> None:
    with pytest.raises(KeyError):
        paths.get_filename_list("ipadapter")
    with pytest.raises(KeyError):
        paths.get_folder_paths("ipadapter")
    assert paths.get_full_path("ipadapter", "a") is None
    with pytest.raises(FileNotFoundError, match="nothing"):
        paths.get_full_path_or_raise("vae", "nothing")


def test_names_cannot_climb_out_of_a_search_path(paths: Any, tmp_path: Path) -> None:
    add(tmp_path / "models" / "secret.pt")
    inside = add(tmp_path / "models" / "vae" / "a.pt")
    assert paths.get_full_path("vae", "../secret.pt") is None
    assert paths.get_full_path("vae", "../a.pt") == str(inside)


def test_table_is_live_whatever_packs_write_into_it(paths: Any, tmp_path: Path) -> None:
    found = add(tmp_path / "elsewhere" / "x.gguf")
    table = paths.folder_names_and_paths
    table["unet_gguf"] = ((str(found.parent),), [".gguf"])
    assert paths.get_filename_list("unet_gguf") == ["x.gguf"]
    assert paths.get_full_path("unet_gguf", "x.gguf") == str(found)
    paths.add_model_folder_path("unet_gguf", str(tmp_path / "first"), is_default=True)
    assert paths.get_folder_paths("unet_gguf") == [str(tmp_path / "first"), str(found.parent)]


def test_standard_keys_share_one_set_of_extensions(paths: Any, tmp_path: Path) -> None:
    add(tmp_path / "models" / "loras" / "x.gguf")
    paths.folder_names_and_paths["checkpoints"][1].add(".gguf")
    assert paths.get_filename_list("loras") == ["x.gguf"]
    assert ".gguf" in paths.supported_pt_extensions


def test_a_new_key_accepts_every_file_and_aliases_are_no_keys_of_the_table(paths: Any, tmp_path: Path) -> None:
    add(tmp_path / "sams" / "any.thing")
    paths.add_model_folder_path("sams", str(tmp_path / "sams"))
    assert paths.get_filename_list("sams") == ["any.thing"]
    paths.add_model_folder_path("clip", str(tmp_path / "more"))
    assert str(tmp_path / "more") in paths.folder_names_and_paths["text_encoders"][0]
    assert "clip" not in paths.folder_names_and_paths


def test_annotated_names_lead_to_their_folder_and_never_out_of_it(paths: Any, tmp_path: Path) -> None:
    add(tmp_path / "output" / "a.png")
    assert paths.get_annotated_filepath("a.png [output]") == str(tmp_path / "output" / "a.png")
    assert paths.get_annotated_filepath("a.png") == str(tmp_path / "input" / "a.png")
    assert paths.get_annotated_filepath("a.png", str(tmp_path)) == str(tmp_path / "a.png")
    assert paths.annotated_filepath("a.png [temp]") == ("a.png", str(tmp_path / "temp"))
    assert paths.exists_annotated_filepath("a.png [output]")
    assert not paths.exists_annotated_filepath("a.png")
    assert not paths.exists_annotated_filepath("../output/a.png")
    with pytest.raises(ValueError, match="outside"):
        paths.get_annotated_filepath("../output/a.png")


def test_saved_files_are_counted_in_the_subfolder_of_their_prefix(paths: Any, tmp_path: Path) -> None:
    output = str(tmp_path / "output")
    add(tmp_path / "output" / "a" / "pic64_00007_.png")
    add(tmp_path / "output" / "a" / "pic64_wide_00009_.png")
    found = paths.get_save_image_path("a/pic%width%", output, 64, 32)
    assert found == (os.path.join(output, "a"), "pic64", 8, "a", "a/pic64")
    assert paths.get_save_image_path("new", output)[2] == 1
    with pytest.raises(ValueError, match="not allowed"):
        paths.get_save_image_path("../x", output)


def test_time_tokens_are_replaced(paths: Any, tmp_path: Path) -> None:
    name = paths.get_save_image_path("%year%-%month%-%day% %hour%%minute%%second%", str(tmp_path))[1]
    assert "%" not in name
    assert len(name) == len("2026-01-01 000000")


def test_folders_are_those_of_the_tenant_that_is_served(paths: Any, bridge: RememberingBridge) -> None:
    mine = paths.get_output_directory()
    places = another_tenant(bridge, "zoe")
    assert paths.get_output_directory() == paths.output_directory == str(places.output) != mine
    assert paths.get_directory_by_type("input") == str(places.input)
    assert paths.get_directory_by_type("nothing") is None


def test_models_saved_below_the_output_folder_are_the_tenants_own(tmp_path: Path) -> None:
    saved = FolderInfo((str(tmp_path / "output" / "loras"),), (".pt",))
    add(tmp_path / "output" / "loras" / "mine.pt")
    with pack_modules(tmp_path, folders={"loras": saved}) as bridge:
        paths = module("folder_paths")
        assert paths.get_filename_list("loras") == ["mine.pt"]
        places = another_tenant(bridge, "zoe")
        assert paths.get_filename_list("loras") == []
        assert paths.get_folder_paths("loras") == [str(places.output / "loras")]


def test_a_folder_that_a_pack_sets_holds_for_nobody_elses_calls(
    paths: Any, bridge: RememberingBridge, tmp_path: Path
) -> None:
    paths.set_output_directory(str(tmp_path / "other"))
    assert paths.output_directory == paths.get_output_directory() == str(tmp_path / "other")
    paths.temp_directory = str(tmp_path / "t")
    assert paths.get_temp_directory() == str(tmp_path / "t")
    assert paths.get_output_directory() != str(another_tenant(bridge, "zoe").output / "x")
    assert paths.get_output_directory().startswith(str(tmp_path / "tenants" / "zoe"))


def test_the_module_lies_in_the_base_folder(paths: Any, tmp_path: Path) -> None:
    assert os.path.dirname(paths.__file__) == paths.base_path == str(tmp_path)
    assert paths.models_dir == str(tmp_path / "models")


def test_files_are_told_apart_by_content(paths: Any) -> None:
    names = ["a.png", "b.webp", "c.mp4", "d.wav", "e.glb", "f.txt"]
    assert paths.filter_files_content_types(names, ["image"]) == ["a.png", "b.webp"]
    assert paths.filter_files_content_types(names, ["video", "audio", "model"]) == ["c.mp4", "d.wav", "e.glb"]


def test_input_subfolders_are_listed(paths: Any, tmp_path: Path) -> None:
    (tmp_path / "input" / "a" / "b").mkdir(parents=True)
    assert paths.get_input_subfolders() == ["a", "a/b"]


def test_extra_paths_of_a_file_are_added_the_last_default_first(paths: Any, tmp_path: Path) -> None:
    file = add(tmp_path / "extra.yaml", "mine:\n  base_path: x\n  is_default: true\n  clip: |\n    a\n    b\n")
    module("utils.extra_config").load_extra_path_config(str(file))
    assert paths.get_folder_paths("clip")[:2] == [str(tmp_path / "x" / "b"), str(tmp_path / "x" / "a")]


def test_a_name_that_is_not_there_is_told_by_name(paths: Any) -> None:
    with pytest.raises(ImportError, match=r"comfyserverless has no folder_paths\.nothing"):
        from folder_paths import nothing  # type: ignore[import-not-found]  # noqa: F401
    assert not hasattr(paths, "nothing")


def test_what_packs_have_changed_is_told(tmp_path: Path) -> None:
    from comfyserverless.host.folders.part import with_folders

    told = {
        "loras": FolderInfo((str(tmp_path / "l"),), (".pt",)),
        "vae": FolderInfo((str(tmp_path / "v"),), (".pt",)),
    }
    with pack_modules(tmp_path, folders=told):
        paths = module("folder_paths")
        assert with_folders(Catalog((), {})).folders == {}
        paths.add_model_folder_path("sams", str(tmp_path / "s"))
        paths.add_model_folder_path("loras", str(tmp_path / "first"), is_default=True)
        assert with_folders(Catalog((), {})).folders == {
            "sams": FolderInfo((str(tmp_path / "s"),), ()),
            "loras": FolderInfo((str(tmp_path / "first"), str(tmp_path / "l")), (".pt",)),
        }
