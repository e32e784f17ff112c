"""Turn words into CLIP's token ids with the byte-pair vocabulary that ships with the package.

Text is normalised as OpenAI's tokenizer does without ftfy: control characters go, CJK characters stand
alone, white space collapses, letters are lower case (accents stay).
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

START_ID = 49406
END_ID = 49407
VOCAB_COUNT = 49408

_MERGE_COUNT = 49152 - 256 - 2
_END_OF_WORD = "</w>"
_WORD_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def clip_ids(text: str) -> list[int]:
    """Return the token ids of a text, without start and end marks. Lone surrogates are dropped."""
    clean = text.encode("utf-8", "ignore").decode("utf-8")
    return list(clip_tokenizer().encode(clean, add_special_tokens=False).ids)


def _byte_letters() -> list[str]:
    """Return the 256 printable letters that stand for bytes, in the vocabulary's order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    return [chr(code) for code in printable] + [chr(256 + n) for n in range(256 - len(printable))]


def _read_merges() -> list[tuple[str, str]]:
    packed = resources.files("comfyserverless.models").joinpath("data/clip_bpe_vocab.txt.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").split("\n")[1 : 1 + _MERGE_COUNT]
    return [(left, right) for left, right in (line.split() for line in lines)]


@lru_cache(maxsize=1)
def clip_tokenizer() -> Tokenizer:
    """Build the tokenizer, once per process."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

    letters, merges = _byte_letters(), _read_merges()
    pieces = letters + [letter + _END_OF_WORD for letter in letters] + [left + right for left, right in merges]
    marks = ["<|startoftext|>", "<|endoftext|>"]
    vocab = {piece: at for at, piece in enumerate(pieces + marks)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, end_of_word_suffix=_END_OF_WORD, unk_token=marks[1]))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.BertNormalizer(
                clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=False
            ),
            normalizers.NFC(),
            normalizers.Lowercase(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORD_PATTERN), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(mark, normalized=False, special=True) for mark in marks])
    return tokenizer
