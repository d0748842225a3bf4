"""The interfaces of other tokenizers, over ours: change an import, keep the code.

`tiktoken` has an `Encoding` and `minbpe` the classes of minbpe; neither needs the library that it
stands in for. `tokenizers` and `huggingface` make the tokenizers of those libraries fast.
"""
