"""The programs of this bench: each joins a cluster that is up, or stays on this machine."""
