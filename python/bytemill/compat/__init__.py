"""Drop-in interfaces of other tokenizer libraries: change the import, keep the code.

`tiktoken` and `minbpe` replace those libraries and do not need them. `tokenizers` and `huggingface`
accelerate the tokenizers of `tokenizers` and transformers.
"""
