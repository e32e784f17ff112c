"""Cut texts into CLIP's tokens in this process, as the workers do, and write them as ComfyUI's tokenizers do.

A dict from kind of text model (`l`, `g`, `h`) to chunks; a chunk is a list of (id or vector, weight) or (id or
vector, weight, number of the word). Packs change and join these, and have them encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from comfyserverless.models.text.bpe import END_ID, START_ID, clip_ids, clip_tokenizer
from comfyserverless.models.text.chunks import CHUNK_TOKENS, tokenize
from comfyserverless.models.text.clip_files import ClipKind
from comfyserverless.models.text.embeddings import load_embedding
from comfyserverless.models.text.encoder import PAD_IDS

Tokens = dict[str, list[list[tuple[Any, ...]]]]


class KindTokenizer:
    """The tokenizer of one text model."""

    def __init__(self, kind: ClipKind, embeddings: tuple[str, ...]) -> None:
        self.kind = kind
        self.embedding_directory = list(embeddings)
        self.embedding_identifier = "embedding:"
        self.embedding_key = f"clip_{kind}"
        self.max_length = CHUNK_TOKENS
        self.max_word_length = 8
        self.start_token, self.end_token = START_ID, END_ID
        self.pad_with_end = PAD_IDS[kind] == END_ID
        self.pad_to_max_length = True

    @property
    def tokenizer(self) -> Any:
        """Return what turns words into ids."""
        return _Words()

    @property
    def inv_vocab(self) -> dict[int, str]:
        """Return the words by id."""
        return {number: word for word, number in clip_tokenizer().get_vocab().items()}

    def tokenize_with_weights(self, text: str, return_word_ids: bool = False, **more: Any) -> Any:
        """Return the chunks of a text."""
        folders = tuple(self.embedding_directory)
        chunks = tokenize(
            text, PAD_IDS[self.kind], lambda name: load_embedding(folders, name, self.embedding_key)
        )
        return [
            [
                (
                    token.id if token.vector is None else token.vector,
                    token.weight,
                    *([token.word] * return_word_ids),
                )
                for token in chunk
            ]
            for chunk in chunks
        ]

    def untokenize(self, token_weight_pair: Iterable[tuple[Any, ...]]) -> list[tuple[tuple[Any, ...], str]]:
        """Return each token with its word."""
        words = self.inv_vocab
        return [
            (token, words.get(token[0], "") if isinstance(token[0], int) else "") for token in token_weight_pair
        ]


class _Words:
    """What transformers' tokenizers offer to packs that count words."""

    def __call__(self, text: str, **more: Any) -> dict[str, list[int]]:
        return {"input_ids": [START_ID, *clip_ids(text), END_ID]}

    def get_vocab(self) -> dict[str, int]:
        """Return the ids by word."""
        vocabulary: dict[str, int] = clip_tokenizer().get_vocab()
        return vocabulary

    def tokenize(self, text: str) -> list[str]:
        """Return the pieces of a text."""
        words = {number: word for word, number in self.get_vocab().items()}
        return [words[number] for number in clip_ids(text)]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text with marks."""
        return [START_ID, *clip_ids(text), END_ID]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""
        text: str = clip_tokenizer().decode(list(ids))
        return text


class Tokenizer:
    """The tokenizers of a CLIP, with those of its parts as `clip_l`, `clip_g`, `clip_h`."""

    def __init__(self, kinds: Iterable[ClipKind], embeddings: tuple[str, ...]) -> None:
        self.parts = {kind: KindTokenizer(kind, embeddings) for kind in kinds}
        for kind, part in self.parts.items():
            setattr(self, f"clip_{kind}", part)
        self.clip = next((f"clip_{kind}" for kind in self.parts), "clip_l")
        self.clip_name = next(iter(self.parts), "l")

    def tokenize_with_weights(self, text: str, return_word_ids: bool = False, **more: Any) -> Tokens:
        """Return the chunks of a text for each text model."""
        return {kind: part.tokenize_with_weights(text, return_word_ids) for kind, part in self.parts.items()}

    def untokenize(self, token_weight_pair: Iterable[tuple[Any, ...]]) -> list[tuple[tuple[Any, ...], str]]:
        """Return each token of the first text model with its word."""
        return next(iter(self.parts.values())).untokenize(token_weight_pair)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the vocabulary is not in the file."""
        return {}


def plain_tokens(tokens: Mapping[str, Any]) -> dict[str, list[list[list[Any]]]]:
    """Return tokens as a value tree: [id or tensor, weight] each; numbers of words are left out.

    Raises TypeError for what is no token.
    """
    return {
        kind: [[[_plain(token[0]), float(token[1])] for token in chunk] for chunk in chunks]
        for kind, chunks in tokens.items()
    }


def _plain(token: Any) -> Any:
    if isinstance(token, torch.Tensor):
        return token.detach().float().reshape(-1) if token.numel() > 1 else int(token)
    if isinstance(token, Mapping):
        raise TypeError(
            f"a token of type {token.get('type')!r} cannot be encoded by the text models of this server"
        )
    return int(token)
