"""The worker: a process that restores, trains, evaluates and hands on."""
