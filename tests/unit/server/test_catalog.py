"""Node classes and model files are described as clients of ComfyUI know them."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from PIL import Image

from comfyserverless.core.config import Folders

Client = TestClient[Any, Any]
RECORDED = json.loads((Path(__file__).parents[2] / "contract/data/get.json").read_text())


def write_safetensors(path: Path, metadata: dict[str, str] | None) -> None:
    header = json.dumps({} if metadata is None else {"__metadata__": metadata}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(header).to_bytes(8, "little") + header)


def png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(buffer, "PNG")
    return buffer.getvalue()


async def test_node_has_the_recorded_inputs(client: Client) -> None:
    shown = (await (await client.get("/object_info/KSampler")).json())["KSampler"]
    recorded = RECORDED["/object_info/KSampler"]["body"]["KSampler"]
    assert recorded.keys() - shown.keys() <= {"output_tooltips"}
    assert list(shown["input"]["required"]) == list(recorded["input"]["required"])
    assert shown["input_order"] == recorded["input_order"]


async def test_every_node_satisfies_the_page(client: Client) -> None:
    nodes = json.loads(await (await client.get("/api/object_info")).read(), parse_constant=pytest.fail)
    assert len(nodes) > 10
    for name, info in nodes.items():
        assert info["name"] == name
        assert isinstance(info["python_module"], str), name


async def test_unknown_node_is_an_empty_object(client: Client) -> None:
    assert await (await client.get("/object_info/NoSuchNode")).json() == {}


async def test_new_model_files_are_choices_at_once(client: Client, folders: Folders) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        write_safetensors(folders.models[0] / "checkpoints" / name, None)
        info = await (await client.get("/object_info/CheckpointLoaderSimple")).json()
        assert name in json.dumps(info)


async def test_folder_keys_are_canonical(client: Client) -> None:
    keys = await (await client.get("/models")).json()
    assert sorted(keys) == sorted(RECORDED["/models"]["body"])
    for alias in ("unet", "clip", "nope"):
        assert (await client.get(f"/models/{alias}")).status == 404


async def test_models_and_embeddings_are_listed_by_relative_name(client: Client, folders: Folders) -> None:
    write_safetensors(folders.models[0] / "loras/sub/a.safetensors", None)
    write_safetensors(folders.models[0] / "embeddings/style.pt", None)
    assert await (await client.get("/models/loras")).json() == ["sub/a.safetensors"]
    assert await (await client.get("/embeddings")).json() == ["style"]


async def test_library_lists_folders_with_their_extensions(client: Client) -> None:
    entries = await (await client.get("/api/experiment/models")).json()
    names = {entry["name"] for entry in entries}
    assert not names & {"configs", "custom_nodes"}
    assert RECORDED["/experiment/models"]["body"][0].keys() <= entries[0].keys()
    assert ".safetensors" in next(entry for entry in entries if entry["name"] == "loras")["extensions"]


async def test_library_folder_lists_model_files_only(client: Client, folders: Folders) -> None:
    root = folders.models[0] / "loras"
    write_safetensors(root / "sub/a.safetensors", None)
    for name in ("a.png", ".hidden.safetensors", "readme.txt"):
        (root / name).write_bytes(b"")
    entries = await (await client.get("/experiment/models/loras")).json()
    assert [(entry["name"], entry["pathIndex"]) for entry in entries] == [("sub/a.safetensors", 0)]
    assert entries[0].keys() == {"name", "pathIndex", "modified", "created", "size"}
    assert (await client.get("/experiment/models/nope")).status == 404


async def test_metadata_of_a_header_is_shown(client: Client, folders: Folders) -> None:
    root = folders.models[0] / "loras"
    write_safetensors(root / "a.safetensors", {"ss_steps": "5"})
    write_safetensors(root / "bare.safetensors", None)
    (root / "broken.safetensors").write_bytes(b"\xff" * 8)
    (root / "big.safetensors").write_bytes((2 << 20).to_bytes(8, "little") + b" " * (2 << 20))
    (root / "a.pt").write_bytes(b"x")
    shown = await client.get("/view_metadata/loras?filename=a.safetensors")
    assert await shown.json() == {"ss_steps": "5"}
    for name in ("bare.safetensors", "broken.safetensors", "big.safetensors", "a.pt", "nope.safetensors", ""):
        assert (await client.get(f"/view_metadata/loras?filename={name}")).status == 404, name
    outside = "../../secret.safetensors"
    write_safetensors(folders.base / "secret.safetensors", {"secret": "1"})
    assert (await client.get("/view_metadata/loras", params={"filename": outside})).status == 404
    assert (await client.get("/view_metadata/nope?filename=a.safetensors")).status == 404


async def test_model_preview_is_the_picture_beside_it_or_inside_it(client: Client, folders: Folders) -> None:
    root = folders.models[0] / "loras"
    cover = json.dumps([base64.b64encode(png()).decode()])
    write_safetensors(root / "inside.safetensors", {"ssmd_cover_images": cover})
    write_safetensors(root / "sub/beside.safetensors", None)
    (root / "sub/beside.preview.png").write_bytes(png())
    for name in ("inside.webp", "sub/beside.webp"):
        answer = await client.get(f"/api/experiment/models/preview/loras/0/{name}")
        assert (answer.status, answer.content_type) == (200, "image/webp"), name


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("loras/0/nope.webp", 404),
        ("loras/9/a.webp", 404),
        ("loras/x/a.webp", 404),
        ("loras/-1/a.webp", 404),
        ("loras/%C2%B2/a.webp", 404),
        ("loras/" + "9" * 5000 + "/a.webp", 404),
        ("nope/0/a.webp", 404),
        ("loras/0/..%2F..%2F..%2Fa.webp", 403),
    ],
)
async def test_bad_model_previews_are_refused(client: Client, path: str, status: int) -> None:
    from yarl import URL

    answer = await client.get(URL(f"/experiment/models/preview/{path}", encoded=True))
    assert answer.status == status
