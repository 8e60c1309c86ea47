"""Speed and quality of decisions, measured against bounds and peers."""
