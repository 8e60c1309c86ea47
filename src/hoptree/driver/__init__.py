"""One driver of a study: its session, reuse of stored states, other drivers on the store, and user requests."""
