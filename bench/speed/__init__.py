"""The bench of speed: workload W1 beside a bound and beside peers, and what hops, units and starts cost."""
