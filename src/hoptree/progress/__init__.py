"""How a run looks while it lasts: a tally of what happens, scenes to show, and displays that show them."""

from hoptree.progress.asking import Asking
from hoptree.progress.display import Display, Nothing, Spectator, choose_display
from hoptree.progress.remaining import Remaining, TimeLeft
from hoptree.progress.scene import Scene, Scenes
from hoptree.progress.tally import Tally

__all__ = [
    "Asking",
    "Display",
    "Nothing",
    "Remaining",
    "Scene",
    "Scenes",
    "Spectator",
    "Tally",
    "TimeLeft",
    "choose_display",
]
