"""Identity: everything that must be equal for two states to have equal bits: code, files and platform."""
