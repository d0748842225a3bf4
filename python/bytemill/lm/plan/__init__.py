"""What a model costs, and which settings are best: before, beside and around training."""
