"""A colour and a symbol for every lane, the same in every plot and every run."""

import math

_GOLDEN = (math.sqrt(5) - 1) / 2
# No "x": it marks failures.
_SYMBOLS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwyz"
# Lanes with a similar hue are many lanes apart, and differ in lightness.
_LIGHTNESS = (0.72, 0.80, 0.64)
_CHROMA = 0.125


def symbol(lane: int) -> str:
    """Return the letter or digit of a lane; they repeat after 61 lanes.

    >>> symbol(0), symbol(10), symbol(61)
    ('0', 'A', '0')
    """
    return _SYMBOLS[lane % len(_SYMBOLS)]


def lane_colour(lane: int) -> str:
    """Return the colour of a lane: hues a golden ratio apart, so that any number of lanes is spread evenly.

    It is light enough for dark text on it, and strong enough for a white page.

    >>> lane_colour(0), lane_colour(1)
    ('#e8847c', '#79c4ff')
    """
    hue = (0.07 + lane * _GOLDEN) % 1.0
    return _oklch(_LIGHTNESS[lane % len(_LIGHTNESS)], _CHROMA, hue)


def _oklch(lightness: float, chroma: float, turn: float) -> str:
    """Convert Oklch to sRGB: unlike in HSV, equal steps of hue look equal.

    The numbers are from https://bottosson.github.io/posts/oklab.
    """
    a, b = chroma * math.cos(math.tau * turn), chroma * math.sin(math.tau * turn)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * _gamma(channel)):02x}" for channel in linear)


def _gamma(channel: float) -> float:
    clipped = min(1.0, max(0.0, channel))
    return 12.92 * clipped if clipped <= 0.0031308 else 1.055 * clipped ** (1 / 2.4) - 0.055
