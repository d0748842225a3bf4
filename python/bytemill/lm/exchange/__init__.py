"""Export and import: the formats of transformers and llama.cpp."""
