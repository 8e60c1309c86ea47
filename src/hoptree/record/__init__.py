"""What a study was, as its journal tells it: read and trained again, told, and what the disk holds of it."""
