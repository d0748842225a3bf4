"""All that exists only for speed on CPUs."""
