"""What a study will take and what it took: measured, simulated, explained."""
