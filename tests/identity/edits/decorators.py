"""Decorators: functions, objects with state, wraps, caches, dispatch, context managers."""

from __future__ import annotations

from tests.identity.edits.case import edit, same

BUILD = "def net(hp):\n    return nn.Sequential(nn.Linear(4, width(hp)), nn.Linear(width(hp), 2))\n"
PLAIN = """
import functools
def plus(function):
    def inner(hp):
        return function(hp) + 1
    return inner
@plus
def width(hp):
    return 3
"""
WRAPS = PLAIN.replace("    def inner(hp)", "    @functools.wraps(function)\n    def inner(hp)")
ARGUMENT = """
import functools
def plus(by, times=1):
    def decorate(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return function(*args, **kwargs) * times + by
        return inner
    return decorate
@plus(1, times=2)
def width(hp):
    return 3
"""
OBJECT = """
import functools
class Plus:
    extra = 1
    def __init__(self, function, by):
        functools.update_wrapper(self, function)
        self.function = function
        self.by = by
    def __call__(self, hp):
        return self.function(hp) + self.by + self.extra
def plus(by):
    return lambda function: Plus(function, by)
@plus(2)
def width(hp):
    return 3
"""
STATE = """
import functools
class Named:
    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.settings = {"by": 2}
    def __call__(self, hp):
        return self.__wrapped__(hp) + self.settings["by"]
@Named
def width(hp):
    return 3
"""
DISPATCH = """
import functools
@functools.singledispatch
def sized(value):
    return 2
@sized.register
def _(value: int):
    return value + 1
@sized.register(str)
def _(value):
    return len(value)
def width(hp):
    return sized(hp["width"]) + sized(hp["kind"]) + sized(1.5)
"""
METHOD = """
import functools
class Sizes:
    def plus(self, n, by):
        return n + by
    wide = functools.partialmethod(plus, by=2)
    @functools.singledispatchmethod
    def of(self, value):
        return 1
    @of.register
    def _(self, value: int):
        return value + 1
    @functools.lru_cache(maxsize=None)
    def kept(self, n):
        return n + 1
def width(hp):
    return Sizes().wide(3) + Sizes().of(2) + Sizes().kept(1)
"""
MANAGER = """
import contextlib
@contextlib.contextmanager
def seeded(number):
    torch.manual_seed(number)
    yield number
def width(hp):
    with seeded(3) as n:
        return n
"""
NO_GRAD = """
@torch.no_grad()
def start(model):
    model.weight.mul_(0.5)
    return model
def net(hp):
    return start(nn.Linear(4, 2))
"""
REGISTRY = """
NETS = {}
def register(name):
    def keep(function):
        NETS[name] = function
        return function
    return keep
@register("a")
def small(hp):
    return nn.Linear(4, 2)
@register("b")
def wide(hp):
    return nn.Linear(4, 2, bias=False)
def net(hp):
    return NETS[hp["kind"]](hp)
"""
STACKED = """
import functools
def one(f):
    @functools.wraps(f)
    def inner(hp):
        return f(hp) * 2
    return inner
def two(f):
    @functools.wraps(f)
    def inner(hp):
        return f(hp) + 1
    return inner
@one
@two
def width(hp):
    return 3
"""
CHECKED = """
import functools
def checked(f):
    @functools.wraps(f)
    def inner(hp):
        assert hp["width"] > 0
        return f(hp)
    return inner
def width(hp):
    return 3
"""

EDITS = [
    edit("a decorator", PLAIN, "+ 1", "+ 2", net=BUILD),
    edit("a decorated function", PLAIN, "return 3", "return 4", net=BUILD),
    edit("a decorator left out", PLAIN, "@plus\n", "", net=BUILD),
    edit("a decorator that wraps", WRAPS, "+ 1", "+ 2", net=BUILD),
    edit("a function that is wrapped", WRAPS, "return 3", "return 4", net=BUILD),
    edit("a decorator's argument", ARGUMENT, "plus(1,", "plus(2,", net=BUILD),
    edit("a decorator's keyword", ARGUMENT, "times=2)", "times=3)", net=BUILD),
    edit("a decorator's default", ARGUMENT.replace(", times=2", ""), "times=1", "times=2", net=BUILD),
    edit("a decorator that is an object: its argument", OBJECT, "@plus(2)", "@plus(3)", net=BUILD),
    edit("a decorator that is an object: its method", OBJECT, "+ self.extra", "* self.extra", net=BUILD),
    edit("a decorator that is an object: its class's attribute", OBJECT, "extra = 1", "extra = 2", net=BUILD),
    edit("a decorator that is an object: what it wraps", OBJECT, "return 3", "return 4", net=BUILD),
    edit("a decorator's own state", STATE, '"by": 2', '"by": 3', net=BUILD),
    edit("a decorator's state that is changed later", STATE, "    return 3\n", "    return 3\nwidth.settings['by'] = 4\n", net=BUILD),
    edit("what an object wraps", STATE, "return 3", "return 4", net=BUILD),
    edit("single dispatch: a registered function", DISPATCH, "value + 1", "value + 2", net=BUILD),
    edit("single dispatch: another type", DISPATCH, "register(str)", "register(bytes)", net=BUILD),
    edit("single dispatch: the default", DISPATCH, "return 2", "return 3", net=BUILD),
    edit("a partial method's argument", METHOD, "by=2", "by=3", net=BUILD),
    edit("a partial method's function", METHOD, "n + by", "n * by", net=BUILD),
    edit("a method dispatched", METHOD, "value + 1", "value + 2", net=BUILD),
    edit("a cached method", METHOD, "return n + 1", "return n + 2", net=BUILD),
    edit("a context manager", MANAGER, "manual_seed(number)", "manual_seed(number + 1)", net=BUILD),
    edit("a context manager's argument", MANAGER, "seeded(3)", "seeded(4)", net=BUILD),
    edit("under no_grad", NO_GRAD, "0.5", "0.75"),
    edit("a registered function", REGISTRY, "return nn.Linear(4, 2)\n", "return nn.Linear(4, 2, bias=False)\n"),
    edit("the function that a registry has under a name", REGISTRY, '@register("b")\ndef wide', '@register("a")\ndef wide'),
    edit("the order of decorators", STACKED, "@one\n@two", "@two\n@one", net=BUILD),
    same("a decorator more that only checks", CHECKED, "def width", "@checked\ndef width", net=BUILD,
         alarm="added code without effect, other than messages"),
    same("a docstring of what is wrapped", WRAPS, "    return 3", "    'Three.'\n    return 3", net=BUILD),
    same("a docstring of what an object wraps", STATE, "    return 3", "    'Three.'\n    return 3", net=BUILD),
    same("the inner function's name", PLAIN, "inner", "within", net=BUILD),
    same("a function that nothing calls", PLAIN + "def other(hp):\n    return 9\n", "def other(hp):\n    return 9\n", "", net=BUILD),
]  # fmt: skip
