"""Freshly trained tokenizers of the `tokenizers` library, built like those of models."""

from __future__ import annotations

from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers, processors

from bytemill import train_tokenizer
from bytemill._native import pattern_regex

EOT = "<|endoftext|>"
TEXTS = [
    "the cat",
    "",
    " sat  on\n\nthe mat ",
    f"naïve 😀{EOT} 日本語",
    "don't  <s>stop→ it\t <mask> now <mask>",
    "cafe\u0301 e\u0301 the<plain> cat</s>",
]


def trained(documents: list[str], pattern: str = "gpt2") -> Any:
    """A tokenizer with some ids, without a post-processor."""
    texts = [*documents[:30], "naïve déjà vu 日本語日本語 😀😀 " * 50]
    learned = train_tokenizer(iter(texts), vocab_size=1200, special_tokens=[EOT], pattern=pattern)
    made: Any = tokenizers.Tokenizer.from_buffer(learned.write()[0])
    made.post_processor = None
    return made


def gpt2(documents: list[str]) -> Any:
    made = trained(documents)
    made.post_processor = processors.ByteLevel(trim_offsets=True)
    return made


def bare(documents: list[str]) -> Any:
    return trained(documents)


def llama3(documents: list[str]) -> Any:
    made = trained(documents, "llama3")
    made.model.ignore_merges = True
    made.add_special_tokens(["<s>", "</s>", "<pad>"])
    template = processors.TemplateProcessing(
        single="<s> $A",
        pair="<s> $A <s>:1 $B:1",
        special_tokens=[("<s>", made.token_to_id("<s>"))],
    )
    level = processors.ByteLevel(trim_offsets=True, add_prefix_space=False)
    made.post_processor = processors.Sequence([level, template])
    return made


def qwen(documents: list[str]) -> Any:
    """NFC, and added tokens that are not special."""
    made = trained(documents)
    made.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(pattern_regex("qwen2")), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    made.add_special_tokens(["<s>", "</s>"])
    made.add_tokens([AddedToken("<plain>", normalized=False), AddedToken("→")])
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return made


def surrounded(documents: list[str]) -> Any:
    """Tokens around each text, and one that includes the white space before it."""
    made = trained(documents)
    made.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True)])
    made.add_tokens([AddedToken("<plain>", normalized=False)])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B:1 </s>:1",
        special_tokens=[(token, made.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    return made


def roberta(documents: list[str]) -> Any:
    made = trained(documents)
    made.add_special_tokens(["<s>", "</s>"])
    ids = {token: made.token_to_id(token) for token in ("<s>", "</s>")}
    made.post_processor = processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]))
    return made


def prefixed(documents: list[str]) -> Any:
    """A tokenizer that bytemill does not accelerate."""
    made = trained(documents)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return made


ALL = {make.__name__: make for make in (gpt2, bare, llama3, qwen, surrounded, roberta, prefixed)}
