"""Studies as recorded in a store: replaying a journal, results, retraining, timelines and disk usage."""
