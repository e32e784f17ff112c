"""A pack as popular ones are made: routes, scripts, messages, a look at every prompt, a progress bar."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import comfy.utils
import folder_paths
import nodes
from aiohttp import web
from comfy_execution.graph_utils import GraphBuilder
from PIL import Image
from server import PromptServer

HERE = Path(__file__).parent
WEB_DIRECTORY = "./web"
routes = PromptServer.instance.routes

(HERE / "static").mkdir(exist_ok=True)
(HERE / "static" / "data.txt").write_text("static content")
(HERE / "static" / "brought.safetensors").write_bytes(b"")
(HERE / "more").mkdir(exist_ok=True)
(HERE / "more" / "more.js").write_text("export const more = 1;\n")
nodes.EXTENSION_WEB_DIRS["web_nodes_more"] = str(HERE / "more")
folder_paths.add_model_folder_path("web_nodes_models", str(HERE / "static"))
folder_paths.add_model_folder_path("checkpoints", str(HERE / "static"))
PromptServer.instance.app.router.add_static("/web_nodes/static", HERE / "static")


@routes.get("/web_nodes/greet/{name}")
async def greet(request: web.Request) -> web.Response:
    return web.json_response({"hello": request.match_info["name"], "query": dict(request.query)})


@routes.post("/web_nodes/echo")
async def echo(request: web.Request) -> web.Response:
    return web.Response(body=(await request.read())[::-1], content_type="application/x-own")


@routes.get("/web_nodes/stream")
async def stream(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for number in range(3):
        await answer.write(f"data: {number}\n\n".encode())
        await asyncio.sleep(0.01)
    return answer


@routes.get("/web_nodes/socket")
async def socket(request: web.Request) -> web.WebSocketResponse:
    talk = web.WebSocketResponse()
    await talk.prepare(request)
    async for message in talk:
        await talk.send_str(message.data.upper())
    return talk


@routes.get("/web_nodes/places")
async def places(request: web.Request) -> web.Response:
    PromptServer.instance.send_sync("web_nodes/asked", {"by": "handler"})
    return web.json_response([folder_paths.get_output_directory(), dict(request.headers).get("Authorization")])


@routes.get("/web_nodes/models/{folder}")
async def models(request: web.Request) -> web.Response:
    return web.json_response(folder_paths.get_filename_list(request.match_info["folder"]))


@routes.get("/web_nodes/queue")
async def queue(request: web.Request) -> web.Response:
    running, pending = PromptServer.instance.prompt_queue.get_current_queue()
    history = PromptServer.instance.prompt_queue.get_history(max_items=1)
    return web.json_response({"running": running, "pending": pending, "history": history})


@routes.post("/web_nodes/stop")
async def stop(request: web.Request) -> web.Response:
    nodes.interrupt_processing()
    return web.Response()


@routes.get("/web_nodes/fail")
async def fail(request: web.Request) -> web.Response:
    raise RuntimeError("a handler that fails")


@routes.get("/web_nodes/die")
async def die(request: web.Request) -> web.Response:
    os._exit(1)


@routes.get("/web_nodes/block")
async def block(request: web.Request) -> web.Response:
    while not os.path.exists(request.query["gate"]):  # noqa: ASYNC240 (what packs do)
        time.sleep(0.05)  # noqa: ASYNC251 (what packs do)
    return web.Response(text="at last")


def on_prompt(body: dict[str, Any]) -> dict[str, Any]:
    for node in body["prompt"].values():
        if node.get("class_type") == "WebNodesTell" and node["inputs"].get("text") == "replace me":
            node["inputs"]["text"] = "replaced"
    return body


def break_prompts(body: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError("a handler that fails")


PromptServer.instance.add_on_prompt_handler(break_prompts)
PromptServer.instance.add_on_prompt_handler(on_prompt)


class Tell:
    """Send messages, and go on step by step with pictures."""

    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    OUTPUT_NODE = True
    CATEGORY = "web_nodes"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {
            "required": {"text": ("STRING", {"default": "hello"}), "to_client": ("BOOLEAN", {"default": True})},
            "hidden": {"unique_id": "UNIQUE_ID"},
        }

    def run(self, text: str, to_client: bool, unique_id: str) -> dict[str, Any]:
        server = PromptServer.instance
        sid = server.client_id if to_client else None
        server.send_sync("web_nodes/told", {"text": text, "node": unique_id}, sid)
        if text.startswith("to "):  # the page complains of kinds that it does not know
            server.send_sync(77, text.encode(), sid)
        bar = comfy.utils.ProgressBar(3)
        for step in range(3):
            bar.update_absolute(step + 1, 3, ("JPEG", Image.new("RGB", (64, 32), (80 * step, 0, 0)), 32))
        return {"ui": {"text": [text, server.last_node_id]}, "result": (text,)}


class Wait:
    """Go on until the prompt is stopped."""

    RETURN_TYPES = ()
    FUNCTION = "run"
    OUTPUT_NODE = True
    CATEGORY = "web_nodes"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {}}

    def run(self) -> tuple[()]:
        bar = comfy.utils.ProgressBar(20_000)
        for _ in range(20_000):
            time.sleep(0.05)
            bar.update(1)
        return ()


class Expand:
    """Put another node of this pack in its place."""

    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "web_nodes"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {"required": {"text": ("STRING", {"default": ""})}}

    def run(self, text: str) -> dict[str, Any]:
        graph = GraphBuilder()
        tell = graph.node("WebNodesTell", text=text + " expanded", to_client=True)
        return {"result": (tell.out(0),), "expand": graph.finalize()}


NODE_CLASS_MAPPINGS = {"WebNodesTell": Tell, "WebNodesExpand": Expand, "WebNodesWait": Wait}
NODE_DISPLAY_NAME_MAPPINGS = {"WebNodesTell": "Tell the page"}
