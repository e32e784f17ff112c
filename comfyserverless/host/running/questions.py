"""Answer questions of the control process, on threads of their own: no question waits for a node that runs."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from comfyserverless.core import values as trees
from comfyserverless.core.messages import FromWorker, HostAnswer, HostQuestion
from comfyserverless.host.blocking import ExecutionBlocker
from comfyserverless.host.bridge import CallInfo
from comfyserverless.host.contract import ClassEntry, HiddenValues, contract_of
from comfyserverless.host.failing import words_of
from comfyserverless.host.jsonsafe import json_safe
from comfyserverless.host.loading.registry import ClassRegistry
from comfyserverless.host.running.current import Call, Running, executing
from comfyserverless.host.running.instances import Instances
from comfyserverless.host.running.live import LiveBridge, places_of
from comfyserverless.host.running.prompts import token_values

log = logging.getLogger(__name__)

_THREADS = 8

Answer = Callable[[Any], Any]


class Questions:
    """Answer by kind. others: answers of parts of the host."""

    def __init__(
        self,
        registry: ClassRegistry,
        instances: Instances,
        bridge: LiveBridge,
        send: Callable[[FromWorker], None],
        others: Mapping[str, Answer],
    ) -> None:
        self._registry = registry
        self._instances = instances
        self._bridge = bridge
        self._send = send
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="pack-questions")
        self._answers: dict[str, Answer] = {
            "describe": self._describe,
            "check": self._check,
            "changed": self._changed,
            "object_info": self._object_info,
            "forget": self._forget,
            **others,
        }

    def ask(self, question: HostQuestion) -> None:
        """Begin to answer a question; instances are forgotten at once, before calls that come after it."""
        if question.kind == "forget":
            keys = [(str(tenant), str(node), str(name)) for tenant, node, name in _nodes_of(question)]
            self._threads.submit(self._instances.forget(keys).clear)
        self._threads.submit(self._answer, question)

    def _answer(self, question: HostQuestion) -> None:
        try:
            payload = trees.decode(question.payload)
            answer = self._answers.get(question.kind)
            if answer is None:
                raise LookupError(f"the node host has no answer to {question.kind!r}")
            with self._served(payload):
                given = trees.encode(answer(payload))
            self._send(HostAnswer(question.id, given))
        except BaseException as exc:  # noqa: BLE001 - custom-node call: it always gets an answer
            told = f"{type(exc).__name__}: {words_of(exc)}"
            log.warning("question %s failed: %s", question.kind, told)
            self._send(HostAnswer(question.id, b"", told))

    def _served(self, payload: Any) -> Any:
        """Make the tenant that a question is asked for the one whose folders are seen."""
        about = payload.get("about") if isinstance(payload, dict) else None
        call = CallInfo(tenant=str((about or {}).get("tenant", "")))
        places = places_of((about or {}).get("places") or {}, self._bridge.places)
        return executing(Call(Running(call, places, lambda: False), call))

    def _describe(self, payload: Any) -> Any:
        found: dict[str, Any] = {}
        for node in payload["nodes"]:
            entry = self._registry.get(node["class_type"])
            found[node["id"]] = None if entry is None else _description(entry, node)
        return found

    def _check(self, payload: Any) -> Any:
        return {node["id"]: self._problems(node) for node in payload["nodes"]}

    def _problems(self, node: Any) -> list[list[str]]:
        entry = self._registry.get(node["class_type"])
        if entry is None:
            return []
        given, types = node.get("inputs") or {}, node.get("input_types") or {}
        try:
            outcome = _settled(contract_of(entry.cls).check(entry, given, types))
        except BaseException as exc:
            log.warning("VALIDATE_INPUTS of %s (node %s) failed", entry.name, node["id"], exc_info=True)
            return [["", words_of(exc), type(exc).__name__]]
        if outcome is True or isinstance(outcome, ExecutionBlocker):
            return []
        # Whatever else is an error, as in ComfyUI; None, too, of a validator that forgets its `return True`.
        return [["", "" if outcome is False else str(outcome)]]

    def _changed(self, payload: Any) -> Any:
        about = payload.get("about") or {}
        tokens: dict[str, Any] = {}
        for node in payload["nodes"]:
            entry = self._registry.get(node["class_type"])
            tokens[node["id"]] = float("nan") if entry is None else self._token(entry, node, about)
        return tokens

    def _token(self, entry: ClassEntry, node: Any, about: Mapping[str, Any]) -> Any:
        contract = contract_of(entry.cls)
        values = token_values(about, str(node["id"]))
        try:
            info = contract.describe(entry, node.get("inputs") or {})
            hidden = HiddenValues(values, info.hidden)
            return token_tree(_settled(contract.change_token(entry, node.get("inputs") or {}, hidden)))
        except BaseException:
            log.warning("IS_CHANGED of %s (node %s) failed", entry.name, node["id"], exc_info=True)
            return float("nan")

    def _object_info(self, payload: Any) -> Any:
        wanted = payload.get("class_type")
        if wanted is not None:
            entry = self._registry.get(wanted)
            return {} if entry is None else {entry.name: contract_of(entry.cls).describe(entry, None).info}
        return {name: info.info for name, info in self._registry.describe_all().items()}

    def _forget(self, payload: Any) -> None:
        """Nothing is left to do: see `ask`."""


def _nodes_of(question: HostQuestion) -> list[Any]:
    nodes: list[Any] = trees.decode(question.payload)["nodes"]
    return nodes


def token_tree(token: Any) -> Any:
    """Return a change token as a literal tree that is equal for equal tokens; NaN stays NaN.

    Bytes and numbers of numpy's keep their values; what is compared by identity has no such form, and is NaN.
    """
    if token is None or type(token) in (bool, int, float, str, bytes):
        return token if type(token) is not int or -(1 << 63) <= token < 1 << 64 else str(token)
    if isinstance(token, list | tuple):
        return [token_tree(item) for item in token]
    if isinstance(token, set | frozenset):
        return sorted((token_tree(item) for item in token), key=str)
    if isinstance(token, dict):
        return {str(key): token_tree(item) for key, item in token.items()}
    if isinstance(token, str | int | float) or hasattr(token, "tolist"):
        return json_safe(token)
    return float("nan")


def _settled(value: Any) -> Any:
    """Return a value; one of a coroutine is waited for."""
    return asyncio.run(_wait_for(value)) if inspect.isawaitable(value) else value


async def _wait_for(awaitable: Any) -> Any:
    return await awaitable


def _description(entry: ClassEntry, node: Any) -> Any:
    """Describe a node as it is now, or say why its class cannot."""
    try:
        return msgspec.to_builtins(contract_of(entry.cls).describe(entry, node.get("inputs") or {}))
    except BaseException as exc:
        log.warning("INPUT_TYPES of %s (node %s) failed", entry.name, node["id"], exc_info=True)
        return {"error": f"{type(exc).__name__}: {words_of(exc)}"}
