"""Stand in for what surrounds a graph: a file catalog, a lowering context, and small node classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from comfyserverless.core.errors import PromptError
from comfyserverless.core.ids import InvocationId, NodeId, TensorId, WorkerId
from comfyserverless.core.modelfn import BUILTIN_FUNCTIONS, HOST_FUNCTIONS
from comfyserverless.core.values import FileRef, Output, TensorRef, Value, select
from comfyserverless.graph.declaration import (
    InputSpec,
    NodeDeclaration,
    OutputSpec,
)
from comfyserverless.graph.lowering import (
    Destination,
    Emitted,
    HiddenInputs,
    LoweringContext,
    NodeResult,
    StepProgress,
)
from comfyserverless.nodes.registry import BUILTIN, Registry

_FUNCTIONS = {**BUILTIN_FUNCTIONS, **HOST_FUNCTIONS}

TINY_FILES: Mapping[str, tuple[str, ...]] = {
    "checkpoints": (
        "sd15_inpaint_tiny.safetensors",
        "sd15_tiny.safetensors",
        "sd35_large_tiny.safetensors",
        "sd35_medium_tiny.safetensors",
        "sdxl_tiny.safetensors",
    ),
    "vae": ("sd_vae_tiny.safetensors",),
    "vae_approx": ("taesd_decoder.pth", "taesd_encoder.safetensors", "taesdxl_decoder.safetensors"),
    "loras": ("style.safetensors",),
    "upscale_models": ("esrgan.safetensors",),
    "controlnet": ("canny.safetensors", "depth.safetensors"),
    "text_encoders": ("t5xxl_tiny.safetensors",),
    "diffusion_models": ("net.safetensors",),
}


@dataclass
class FakeCatalog:
    """A catalog over names in memory; counts how often a folder is listed."""

    files: Mapping[str, Sequence[str]] = field(default_factory=lambda: TINY_FILES)
    uploads: dict[str, FileRef] = field(default_factory=dict)
    identities: dict[str, FileRef] = field(default_factory=dict)
    listings: int = 0

    def names(self, folder: str) -> list[str]:
        self.listings += 1
        return sorted(self.files.get(folder, ()))

    def find(self, folder: str, name: str) -> FileRef:
        if name not in self.files.get(folder, ()):
            raise PromptError(f"Model file {name!r} was not found in the {folder!r} folder")
        return self.identities.get(name, FileRef(f"/models/{folder}/{name}"))

    def input_names(self, content: str) -> list[str]:
        suffix = ".latent" if content == "latent" else ".png"
        return sorted(name for name in self.uploads if name.endswith(suffix))

    def has_input(self, name: str) -> bool:
        name.encode()  # as a file system would: a lone surrogate raises
        return name in self.uploads

    def input_identity(self, name: str) -> FileRef | None:
        return self.uploads.get(name)


async def _never_lowered(ctx: LoweringContext, inputs: Mapping[str, Value]) -> NodeResult:
    raise AssertionError("this node class is for validation only")


def node_class(name: str, *inputs: InputSpec, outputs: str = "IMAGE", **more: Any) -> NodeDeclaration:
    """Return a node class with the outputs named in a space-separated text."""
    slots = tuple(OutputSpec(kind) for kind in outputs.split())
    return NodeDeclaration(name=name, lower=_never_lowered, inputs=inputs, outputs=slots, **more)


#: Classes of ComfyUI that recorded prompts use and the built-in nodes lack.
RECORDED_CLASSES: tuple[NodeDeclaration, ...] = ()


def with_builtin(*classes: NodeDeclaration) -> Registry:
    """Return the built-in nodes and some more; a later class replaces a built-in one of its name."""
    known = {name: BUILTIN.get(name) for name in BUILTIN.names()}
    return Registry(
        declaration for declaration in {**known, **{c.name: c for c in classes}}.values() if declaration
    )


@dataclass(frozen=True)
class Call:
    """One emitted invocation."""

    id: InvocationId
    function: str
    inputs: dict[str, Value]
    progress: StepProgress | None


def tensor(name: str, *shape: int) -> TensorRef:
    """Return a reference to a tensor that nobody has."""
    return TensorRef(TensorId(name), shape, "float32", 4, WorkerId("w0.1"), 0)


@dataclass
class FakeContext:
    """A lowering context that records what is emitted and answers `result` from `results`.

    results: outputs by function name; the same for all invocations of that function.
    """

    results: dict[str, dict[str, Value]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    awaited: list[Output] = field(default_factory=list)
    published: list[tuple[Destination, tuple[str, ...], str]] = field(default_factory=list)
    extra_pnginfo: Mapping[str, Any] | None = None
    preview_method: str = "none"
    preview: Value = None
    split_guidance: str = "off"
    choices: dict[str, bool] = field(default_factory=dict)
    embeds_metadata: bool = True
    node_id: str = "9"
    stems: int = 0
    kept: list[InvocationId] = field(default_factory=list)
    reported: list[tuple[StepProgress, bytes | None, NodeId | None]] = field(default_factory=list)
    texts: list[tuple[str, NodeId | None]] = field(default_factory=list)

    @property
    def hidden(self) -> HiddenInputs:
        return HiddenInputs({"9": {"class_type": "X"}}, self.extra_pnginfo, NodeId(self.node_id))

    def emit(self, function: str, *, progress: StepProgress | None = None, **inputs: Value) -> Emitted:
        declared = {port.name for port in _FUNCTIONS[function].inputs}
        assert set(inputs) == declared, f"{function} takes {sorted(declared)}, was given {sorted(inputs)}"
        emitted = Emitted(InvocationId(f"{function}#{len(self.calls)}"))
        self.calls.append(Call(emitted.id, function, inputs, progress))
        return emitted

    def choice(self, key: str) -> bool | None:
        return self.choices.get(key)

    def choose(self, key: str, choice: bool) -> bool:
        return self.choices.setdefault(key, choice)

    def report(self, progress: StepProgress, preview: bytes | None = None, node: NodeId | None = None) -> None:
        self.reported.append((progress, preview, node))

    def show_text(self, text: str, node: NodeId | None = None) -> None:
        self.texts.append((text, node))

    def keep_only(self, emitted: Emitted) -> None:
        self.kept.append(emitted.id)

    async def result(self, output: Output) -> Value:
        self.awaited.append(output)
        function = next(call.function for call in self.calls if call.id == output.invocation)
        return select(self.results[function][output.port], output.path)

    def find_file(self, folder: str, name: str) -> FileRef:
        if name not in TINY_FILES.get(folder, ()):
            raise PromptError(f"Model file {name!r} was not found in the {folder!r} folder")
        return FileRef(f"/models/{folder}/{name}")

    def file_names(self, folder: str) -> list[str]:
        return sorted(TINY_FILES.get(folder, ()))

    def embedding_folders(self) -> tuple[str, ...]:
        return ("/models/embeddings",)

    def find_input_file(self, name: str) -> FileRef:
        return FileRef(f"/input/{name}")

    def destination(self, kind: str, prefix: str, width_px: int = 0, height_px: int = 0) -> Destination:
        subfolder, _, name = prefix.rpartition("/")
        name = name.replace("%width%", str(width_px)).replace("%height%", str(height_px))
        return Destination(f"/{kind}/{subfolder}".rstrip("/"), subfolder, name, kind)

    def expected_number(self, destination: Destination) -> int:
        return len(self.published) + 1

    def staging_stem(self) -> str:
        self.stems += 1
        return f".save{self.stems}"

    async def publish(
        self, destination: Destination, staged: Sequence[str], extension: str
    ) -> list[dict[str, str]]:
        self.published.append((destination, tuple(staged), extension))
        return [
            {
                "filename": f"{destination.name}_{index:05}_.{extension}",
                "subfolder": destination.subfolder,
                "type": destination.kind,
            }
            for index, _ in enumerate(staged, start=1)
        ]

    def functions(self) -> list[str]:
        """List the functions that were called, in order."""
        return [call.function for call in self.calls]


def _is_a_context(fake: FakeContext) -> LoweringContext:
    """Let the type checker prove that the fake has all of the protocol."""
    return fake
