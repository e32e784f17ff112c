"""Encode prompts with one or two CLIP text models as SD1.5, SD2 and SDXL were trained to see them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from comfyserverless.core.errors import PromptError
from comfyserverless.models.resident.keeper import Keeper
from comfyserverless.models.resident.run import ResidentModel
from comfyserverless.models.text.bpe import END_ID
from comfyserverless.models.text.chunks import CHUNK_TOKENS, Chunk, Token, empty_chunk, tokenize
from comfyserverless.models.text.clip import (
    ClipConfig,
    ClipOutput,
    ClipWeights,
    embed_tokens,
    normalize,
    run_clip,
)
from comfyserverless.models.text.clip_files import ClipKind
from comfyserverless.models.text.embeddings import load_embedding

_logger = logging.getLogger(__name__)

PAD_IDS: Mapping[ClipKind, int] = {"l": END_ID, "h": 0, "g": 0}


@dataclass(frozen=True, slots=True)
class ClipPart:
    """One text model of an encoder.

    weights: empty but while a run is at their layer, see `keeper`; models: whose layers they are, the base
    first. default_stop: the layer taken when the graph sets none (None: the last, normalised);
    is_hidden_normalized: whether an earlier layer goes through the final norm too.
    """

    kind: ClipKind
    config: ClipConfig
    weights: ClipWeights
    keeper: Keeper
    models: tuple[ResidentModel, ...]
    default_stop: int | None
    is_hidden_normalized: bool


class TextEncoder:
    """Text models in the order of their features; a prompt gives [1, T, D] features and a pooled vector."""

    def __init__(
        self, parts: tuple[ClipPart, ...], last_layer: int | None, embeddings: tuple[str, ...]
    ) -> None:
        self.parts = parts
        self._last_layer = last_layer
        self._embeddings = embeddings

    def encode(self, text: str) -> tuple[Tensor, Tensor | None]:
        """Encode one prompt.

        Returns cond [1, 77 n, D] float32 (n chunks; D is the sum of the models' widths) and pooled [1, P]
        float32 of the last model.
        """
        return self.encode_parts({part.kind: text for part in self.parts})

    @torch.no_grad()
    def encode_parts(self, texts: Mapping[ClipKind, str]) -> tuple[Tensor, Tensor | None]:
        """Encode another text for each text model; a text that needs fewer chunks gets empty ones."""
        return self.encode_chunks(
            {part.kind: self._tokenize(part, texts.get(part.kind, "")) for part in self.parts}
        )

    @torch.no_grad()
    def encode_chunks(self, given: Mapping[ClipKind, list[Chunk]]) -> tuple[Tensor, Tensor | None]:
        """Encode the chunks of each text model, each of CHUNK_TOKENS tokens; a kind without any gets empty
        ones.

        Raises PromptError for chunks of another length or without an end mark.
        """
        chunks = [_checked(given.get(part.kind) or [empty_chunk(PAD_IDS[part.kind])]) for part in self.parts]
        longest = max(len(c) for c in chunks)
        pairs = [
            _encode_weighted(part, self._stop(part), c + [empty_chunk(PAD_IDS[part.kind])] * (longest - len(c)))
            for part, c in zip(self.parts, chunks, strict=True)
        ]
        return torch.cat([cond for cond, _ in pairs], dim=-1), pairs[-1][1]

    def _tokenize(self, part: ClipPart, text: str) -> list[Chunk]:
        key = f"clip_{part.kind}"
        return tokenize(text, PAD_IDS[part.kind], lambda name: load_embedding(self._embeddings, name, key))

    def _stop(self, part: ClipPart) -> int | None:
        if self._last_layer is None:
            return part.default_stop
        return self._last_layer if abs(self._last_layer) <= part.config.layers else None


def _checked(chunks: list[Chunk]) -> list[Chunk]:
    """Return chunks that can be encoded."""
    for chunk in chunks:
        if len(chunk) != CHUNK_TOKENS:
            raise PromptError(f"a chunk of {len(chunk)} tokens cannot be encoded: it takes {CHUNK_TOKENS}")
        if not any(token.id == END_ID and token.vector is None for token in chunk):
            raise PromptError(f"a chunk without an end mark (token {END_ID}) cannot be encoded")
    return chunks


def _encode_weighted(part: ClipPart, stop: int | None, chunks: list[Chunk]) -> tuple[Tensor, Tensor]:
    """Encode chunks in one batch and scale each token's distance from the empty prompt by its weight."""
    is_weighted = any(token.weight != 1.0 for chunk in chunks for token in chunk)
    batch = [*chunks, empty_chunk(PAD_IDS[part.kind])] if is_weighted else chunks
    with part.keeper.running(part.models) as run:
        output = _run(part, stop, batch, partial(part.keeper.enter, run))
        features = _choose(part, stop, output)
    for row, chunk in enumerate(chunks):
        for at, token in enumerate(chunk):
            if token.weight != 1.0:
                empty = features[-1, at]
                features[row, at] = (features[row, at] - empty) * token.weight + empty
    rows = [features[row : row + 1] for row in range(len(chunks))]
    return torch.cat(rows, dim=1).float(), output.pooled[:1].float()


def _run(part: ClipPart, stop: int | None, batch: list[Chunk], enter: Callable[[int], None]) -> ClipOutput:
    device = part.weights["embeddings.token_embedding.weight"].device
    rows = [_drop_misfits(part, chunk) for chunk in batch]
    embeds = embed_tokens(
        part.weights, torch.tensor([[token.id for token in row] for row in rows], device=device)
    )
    for at_row, row in enumerate(rows):
        for at, token in enumerate(row):
            if token.vector is not None:
                embeds[at_row, at] = token.vector.to(device)
    ends = [
        next(at for at, token in enumerate(row) if token.id == END_ID and token.vector is None) for row in rows
    ]
    end_at = torch.tensor(ends, device=device)
    return run_clip(part.weights, part.config, embeds, end_at, -1 if stop is None else stop, enter)


def _drop_misfits(part: ClipPart, chunk: Chunk) -> Chunk:
    """Leave out vectors of another width than the model's, and pad instead.

    Weights keep their places, as in ComfyUI (0.8.0): they then fall on the tokens that moved up.
    """
    width = part.config.width
    fitting = [token for token in chunk if token.vector is None or token.vector.shape[-1] == width]
    if len(fitting) < len(chunk):
        _logger.warning(
            "%d vectors of a textual inversion are ignored: the text encoder's width is %d",
            len(chunk) - len(fitting),
            width,
        )
    return fitting + [Token(PAD_IDS[part.kind])] * (len(chunk) - len(fitting))


def _choose(part: ClipPart, stop: int | None, output: ClipOutput) -> Tensor:
    if stop is None:
        return output.last
    return normalize(part.weights, output.hidden) if part.is_hidden_normalized else output.hidden
