"""Planning: the costs of a model, and the search for its best settings."""
