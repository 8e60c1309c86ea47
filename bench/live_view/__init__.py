"""Compares our live view to rich's `Live` on terminals. `python -m bench.live_view` needs tmux and pyte."""
