"""What a name depends on: code, files, platform; all that must be the same for two states to have the same bits."""
