"""The pure core: records, schedules, plan, policies, engine, invariants. No clock, no I/O."""
