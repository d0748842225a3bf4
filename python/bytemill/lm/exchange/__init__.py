"""Runs to other programs and from them: transformers and llama.cpp."""
