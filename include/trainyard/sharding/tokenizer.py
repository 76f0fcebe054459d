"""Tokenizers: bytes by default, or a `tokenizers` JSON file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trainyard.errors import Finding, SpecError
from trainyard.sharding.objects import S3_SCHEME
from trainyard.sharding.settings import BYTES_TOKENIZER

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from trainyard.sharding.objects import Objects
    from trainyard.sharding.settings import ShardSettings

BYTE_EOS = 256
_EOS_NAMES = (
    "<|endoftext|>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "[EOS]",
    "[SEP]",
    "<|end_of_text|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",  # DeepSeek
    "<EOS_TOKEN>",
    "<|im_end|>",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenVocabulary:
    """Vocabulary that the settings give, for a source that already has token ids instead of text."""

    vocab_size: int
    eos_token_id: int | None
    name: str = "token ids"


class Tokenizer(Protocol):
    """Converter of rows of UTF-8 text to one array of token ids, with an end-of-sequence token after each row."""

    name: str
    vocab_size: int
    eos_token_id: int
    identity: str

    def encode(self, rows: list[bytes]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Return the tokens of all rows (uint16 or uint32) and the exclusive end of each row, counted in tokens."""


def load_tokenizer(tokenizer: str, objects: Objects) -> Tokenizer:
    """Return the byte tokenizer for `bytes`, otherwise the tokenizer of the named `tokenizers` JSON file.

    Args:
        tokenizer: `bytes`, a path, or an `s3://` address.
        objects: store from which an `s3://` address is read.

    Raises:
        SpecError: the file is missing or is not a tokenizer.
    """
    if tokenizer == BYTES_TOKENIZER:
        return ByteTokenizer()
    return FileTokenizer(tokenizer, _content(tokenizer, objects))


def read_tokenizer_file(tokenizer: str, objects: Objects, *, identity: str) -> bytes:
    """Return the content of a tokenizer's file, after a check of its identity.

    Args:
        tokenizer: a path, or an `s3://` address.
        objects: store from which an `s3://` address is read.
        identity: the expected `Tokenizer.identity`.

    Raises:
        SpecError: the file cannot be read, or has another identity.
    """
    content = _content(tokenizer, objects)
    if (found := hashlib.sha256(content).hexdigest()) != identity:
        finding = Finding(
            where="tokenizer",
            what="has changed since the data set was planned",
            got=f"SHA-256 {found[:16]} of {tokenizer}",
            allowed=f"SHA-256 {identity[:16]}",
            next_step="make sure that no process writes the file, then start a new run",
        )
        raise SpecError(finding, subject="shard settings")
    return content


def load_vocabulary(settings: ShardSettings, objects: Objects) -> Tokenizer | GivenVocabulary:
    """Return a vocabulary of `vocab_size` ids if this setting is not 0, otherwise the tokenizer of the settings.

    Raises:
        SpecError: the tokenizer's file is missing or is not a tokenizer.
    """
    if settings.vocab_size:
        return GivenVocabulary(vocab_size=settings.vocab_size, eos_token_id=settings.eos_token_id)
    return load_tokenizer(settings.tokenizer, objects)


def token_dtype(vocab_size: int) -> str:
    """Return the smallest of uint16 and uint32 that holds every token id."""
    return "uint16" if vocab_size <= 2**16 else "uint32"


class ByteTokenizer:
    """Tokenizer that makes one token of each byte. The token's id is the byte's value, 0 to 255.

    A token with the id 256 follows each row.
    """

    name = BYTES_TOKENIZER
    vocab_size = 257
    eos_token_id = BYTE_EOS
    identity = BYTES_TOKENIZER

    def encode(self, rows: list[bytes]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Return uint16 tokens and the exclusive end of each row in them."""
        import numpy as np

        lengths = np.fromiter((len(row) + 1 for row in rows), dtype=np.int64, count=len(rows))
        ends = np.cumsum(lengths)
        tokens = np.frombuffer(b"\0".join([*rows, b""]), dtype=np.uint8).astype(np.uint16)
        tokens[ends - 1] = BYTE_EOS
        return tokens, ends


class FileTokenizer:
    """A tokenizer of the Hugging Face `tokenizers` library, from the content of its JSON file."""

    def __init__(self, address: str, content: bytes) -> None:
        from tokenizers import Tokenizer as Loaded

        try:
            self._tokenizer = Loaded.from_str(content.decode())
        except Exception as error:  # the library raises nothing narrower
            raise SpecError(_not_a_tokenizer(address, error), subject="shard settings") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        # Text that spells a special token is encoded as plain text.
        self._tokenizer.encode_special_tokens = True
        self.name = address.rpartition("/")[2]
        self.identity = hashlib.sha256(content).hexdigest()
        known = (self._tokenizer.token_to_id(name) for name in _EOS_NAMES)
        # The largest id, since the number of entries is too small if ids have gaps.
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        vocab_size = max(vocabulary.values(), default=-1) + 1
        # A vocabulary without an end token gets one more id.
        self.eos_token_id = next((each for each in known if each is not None), vocab_size)
        self.vocab_size = max(vocab_size, self.eos_token_id + 1)

    def encode(self, rows: list[bytes]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Return the tokens of all rows (uint16 or uint32) and the exclusive end of each row, counted in tokens.

        An end-of-sequence token follows each row and belongs to it.
        """
        import numpy as np

        texts = [row.decode() for row in rows]
        encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        eos = [self.eos_token_id]
        ids = [token for each in encoded for token in (*each.ids, *eos)]
        lengths = np.fromiter((len(each.ids) + 1 for each in encoded), np.int64, len(encoded))
        return np.array(ids, dtype=token_dtype(self.vocab_size)), np.cumsum(lengths)


def _content(address: str, objects: Objects) -> bytes:
    try:
        if not address.startswith(S3_SCHEME):
            return Path(address).read_bytes()
        with objects.open(address) as stream:
            return stream.read()
    except OSError as error:
        raise SpecError(_not_a_tokenizer(address, error), subject="shard settings") from error


def _not_a_tokenizer(address: str, error: Exception) -> Finding:
    return Finding(
        where="tokenizer",
        what="cannot be read as a tokenizer",
        got=f"{address} ({type(error).__name__}: {error})",
        allowed=f"{BYTES_TOKENIZER!r}, or the path or s3:// address of a tokenizer.json of the tokenizers library",
        next_step="correct the path or address, or write the file with Tokenizer.save()",
    )
