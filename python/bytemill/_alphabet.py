"""The byte alphabet of GPT-2: a letter for every byte, in which its descendants spell tokens."""

from __future__ import annotations

# Bytes that print as Latin-1 stand for themselves, the others for letters from U+0100 on.
_PRINTING = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTING]
BYTES = {chr(b): b for b in _PRINTING} | {chr(256 + i): b for i, b in enumerate(_OTHERS)}
_LETTERS = {byte: letter for letter, byte in BYTES.items()}


def spelled(token: bytes) -> str:
    """A token's bytes as letters.

    >>> spelled(b" caf\\xc3\\xa9")
    'ĠcafÃ©'
    """
    # Latin-1 gives every byte a character of its number, which translate then replaces.
    return token.decode("latin-1").translate(_LETTERS)


def bytes_of(token: str) -> bytes:
    """The bytes that a token spells; a token that is not spelled so is its own text."""
    try:
        return bytes([BYTES[letter] for letter in token])
    except KeyError:
        return token.encode()
