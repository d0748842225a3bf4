"""The interfaces of other tokenizers, over ours: change an import, keep the code.

`tiktoken` has an `Encoding`, `huggingface` a `PreTrainedTokenizerFast`, `minbpe` the classes and
modules of minbpe. None of them needs the library that it stands in for.
"""
