"""One driver at work on a store: its session, what the store has, other drivers, and the wishes of users."""
