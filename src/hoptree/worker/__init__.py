"""The worker: a process that loads states, trains and evaluates them, and passes new states on."""
