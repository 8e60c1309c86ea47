"""The bench of decisions: how good the engine's choices are, against lower bounds and other schedulers."""
