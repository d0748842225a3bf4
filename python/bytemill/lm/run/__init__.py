"""A run on disk: its directory, checkpoints and metrics, and how one is resumed."""
