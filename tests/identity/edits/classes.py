"""Classes: members, bases, metaclasses, descriptors, generics, data classes, changes after the definition."""

from __future__ import annotations

from tests.identity.edits.case import edit, same

NET = """
class Net(nn.Module):
    gain = 2.0
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
    @property
    def scale(self):
        return 1.5
    @staticmethod
    def bent(x):
        return torch.relu(x)
    @classmethod
    def shift(cls):
        return cls.gain / 4
    def forward(self, x):
        return self.bent(self.inner(x)) * self.scale * self.gain * self.shift()
def net(hp):
    return Net()
"""
BASES = """
class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
    def bend(self, x):
        return torch.tanh(x)
class Mixed:
    def bend(self, x):
        return torch.sigmoid(x)
class Net(Base):
    def forward(self, x):
        return self.bend(self.inner(x))
def net(hp):
    return Net()
"""
META = """
class Doubling(type):
    def __new__(meta, name, bases, space):
        return super().__new__(meta, name, bases, space)
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.factor = 2.0
        return made
class Net(nn.Module, metaclass=Doubling):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
    def forward(self, x):
        return self.inner(x) * self.factor
def net(hp):
    return Net()
"""
SUBCLASS = """
class Base(nn.Module):
    kinds = {}
    def __init_subclass__(cls, factor=1.0, **rest):
        super().__init_subclass__(**rest)
        cls.factor = factor * 2
        Base.kinds[cls.__name__] = cls
class Small(Base, factor=3.0):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
    def forward(self, x):
        return self.inner(x) * self.factor
def net(hp):
    return Base.kinds["Small"]()
"""
DESCRIPTOR = """
class Factor:
    def __init__(self, value):
        self.value = value
    def __set_name__(self, owner, name):
        self.extra = len(name)
    def __get__(self, instance, owner):
        return self.value + self.extra
class Net(nn.Linear):
    size = Factor(0.5)
    def forward(self, x):
        return super().forward(x) * self.size
def net(hp):
    return Net(4, 2)
"""
DATA = """
from dataclasses import dataclass, field
from typing import NamedTuple
@dataclass
class Config:
    width: int = 3
    layers: list = field(default_factory=lambda: [5])
    bias: bool = True
    def total(self):
        return self.width + sum(self.layers)
class Shape(NamedTuple):
    rows: int = 4
    columns: int = 2
class Slotted:
    __slots__ = ("factor",)
    def __init__(self):
        self.factor = 1.5
CONFIG, SHAPE, SLOTTED = Config(bias=False), Shape(), Slotted()
def net(hp):
    model = nn.Sequential(nn.Linear(SHAPE.rows, Config().total(), CONFIG.bias), nn.Linear(CONFIG.total(), SHAPE.columns))
    with torch.no_grad():
        model[0].weight.mul_(SLOTTED.factor)
    return model
"""
GENERIC = """
from typing import Generic, TypeVar
T = TypeVar("T")
class Small:
    width = 3
class Wide:
    width = 5
class Net(Generic[T]):
    kind = Small
    def build(self):
        width = typed(type(self)).width
        return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))
class Chosen(Net[Small]):
    pass
def typed(cls):
    return cls.__orig_bases__[0].__args__[0]
def net(hp):
    return Chosen().build()
"""
ENUM = """
import enum
class Kind(enum.Enum):
    SMALL = 3
    WIDE = 5
KIND = Kind.SMALL
class Flags(enum.Flag):
    BIAS = enum.auto()
    NONE = 0
def net(hp):
    return nn.Sequential(nn.Linear(4, KIND.value), nn.Linear(Kind.SMALL.value, 2, bool(Flags.BIAS)))
"""
PATCHED = """
class Net(nn.Linear):
    def forward(self, x):
        return super().forward(x)
def other(self, x):
    return F.linear(x, self.weight) * 3
def net(hp):
    return Net(4, 2)
"""
LIBRARY = """
def mine(self, x):
    return F.linear(x, self.weight, self.bias) * 3
def relu(x, inplace=False):
    return x * 0.5
def net(hp):
    return nn.Sequential(nn.Linear(4, 2), nn.ReLU())
"""
CALLABLE = """
class Builder:
    def __init__(self, width):
        self.width = width
        self.log = []
    def __call__(self, hp):
        return nn.Sequential(nn.Linear(4, self.width), nn.Linear(self.width, 2))
    def made(self, hp):
        return self(hp)
builder = Builder(3)
net = builder.made
"""
CACHED = """
from functools import cached_property
class Sizes:
    def __init__(self):
        self.base = 3
    @cached_property
    def width(self):
        return self.base + 1
SIZES = Sizes()
def net(hp):
    return nn.Sequential(nn.Linear(4, SIZES.width), nn.Linear(SIZES.width, 2))
"""
NAMED = """
class Small(nn.Linear):
    pass
def net(hp):
    model = Small(4, 2)
    if type(model).__name__ == "Small":
        model.bias.data.fill_(1.0)
    return model
"""
ANNOTATED = """
class Config:
    width: int
    depth: int
def net(hp):
    width = len(Config.__annotations__) + 1
    return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))
"""
DECORATED = """
def widened(by):
    def apply(cls):
        cls.width = cls.width + by
        return cls
    return apply
@widened(2)
class Config:
    width = 3
def net(hp):
    return nn.Sequential(nn.Linear(4, Config.width), nn.Linear(Config.width, 2))
"""
AUTOGRAD = """
class Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 0.5
class Net(nn.Linear):
    def forward(self, x):
        return Cut.apply(super().forward(x))
def net(hp):
    return Net(4, 2)
"""

EDITS = [
    edit("a class attribute", NET, "gain = 2.0", "gain = 3.0"),
    edit("a property", NET, "return 1.5", "return 1.75"),
    edit("a static method", NET, "torch.relu(x)", "torch.tanh(x)"),
    edit("a class method", NET, "cls.gain / 4", "cls.gain / 5"),
    edit("a method", NET, "* self.shift()", "/ self.shift()"),
    edit("a method of a base", BASES, "torch.tanh", "torch.sin"),
    edit("another base", BASES, "class Net(Base)", "class Net(Mixed, Base)"),
    edit("a method that overrides", BASES, "class Net(Base):\n", "class Net(Base):\n    def bend(self, x):\n        return x\n"),
    edit("a metaclass", META, "made.factor = 2.0", "made.factor = 3.0"),
    edit("a metaclass left out", META.replace("self.inner(x) * self.factor", "self.inner(x) * getattr(self, 'factor', 1.0)"),
         ", metaclass=Doubling", ""),
    edit("__init_subclass__", SUBCLASS, "factor * 2", "factor * 4"),
    edit("an argument of a class definition", SUBCLASS, "factor=3.0", "factor=5.0"),
    edit("a class in a registry", SUBCLASS, "self.inner(x) * self.factor", "self.inner(x) + self.factor"),
    edit("a descriptor's value", DESCRIPTOR, "Factor(0.5)", "Factor(0.75)"),
    edit("a descriptor's method", DESCRIPTOR, "self.value + self.extra", "self.value * self.extra"),
    edit("__set_name__", DESCRIPTOR, "len(name)", "len(name) + 1"),
    edit("the name a descriptor is given", DESCRIPTOR, "size", "size_of_it"),
    edit("a data class's default", DATA, "width: int = 3", "width: int = 4"),
    edit("a data class's factory", DATA, "[5]", "[6]"),
    edit("a data class's method", DATA, "self.width + sum", "self.width * sum"),
    edit("an instance's field", DATA, "bias=False", "bias=True"),
    edit("a named tuple's order", DATA.replace("nn.Linear(SHAPE.rows", "nn.Linear(4").replace("SHAPE.columns)", "2, SHAPE[0] > SHAPE[1])"),
         "rows: int = 4", "rows: int = 1"),
    edit("a slot", DATA, "self.factor = 1.5", "self.factor = 2.5"),
    edit("the argument of a generic base", GENERIC, "Net[Small]", "Net[Wide]"),
    edit("a class that is an argument", GENERIC, "width = 3", "width = 6"),
    edit("an enum member's value", ENUM, "SMALL = 3", "SMALL = 4"),
    edit("another member", ENUM.replace("Kind.SMALL.value, 2", "KIND.value, 2"), "KIND = Kind.SMALL", "KIND = Kind.WIDE"),
    edit("a flag", ENUM, "bool(Flags.BIAS)", "bool(Flags.NONE)"),
    edit("a user's method replaced", PATCHED, "def net(hp)", "Net.forward = other\ndef net(hp)"),
    edit("a user's class given an attribute", NET, "def net(hp)", "Net.gain = 7.0\ndef net(hp)"),
    edit("a library's method replaced", LIBRARY, "def net(hp)", "nn.Linear.forward = mine\ndef net(hp)"),
    edit("a library's function replaced", LIBRARY, "def net(hp)", "F.relu = relu\ndef net(hp)"),
    edit("what replaces a library's method", LIBRARY.replace("def net(hp)", "nn.Linear.forward = mine\ndef net(hp)"), "* 3", "* 4"),
    edit("a replaced method that a library uses", LIBRARY.replace("nn.ReLU()", "nn.MultiheadAttention(2, 1).out_proj"),
         "def net(hp)", "nn.Linear.forward = lambda self, x: F.linear(x, self.weight)\ndef net(hp)"),
    edit("the state of a callable object", CALLABLE, "Builder(3)", "Builder(4)"),
    edit("a callable object's method", CALLABLE, "nn.Linear(4, self.width)", "nn.Linear(4, self.width, bias=False)"),
    edit("another method bound", CALLABLE.replace("def made(self, hp):", "def wide(self, hp):\n        return Builder(6)(hp)\n    def made(self, hp):"),
         "builder.made", "builder.wide"),
    edit("a cached property", CACHED, "self.base + 1", "self.base + 2"),
    edit("what a cached property is made of", CACHED, "self.base = 3", "self.base = 4"),
    edit("a class whose name is asked for", NAMED, "Small(", "Little("),
    edit("annotations that are asked for", ANNOTATED, "    depth: int\n", "    depth: int\n    more: int\n"),
    edit("a class decorator", DECORATED, "cls.width + by", "cls.width * by"),
    edit("a class decorator's argument", DECORATED, "widened(2)", "widened(3)"),
    edit("a forward of autograd", AUTOGRAD, "x * 2", "x * 3"),
    edit("a backward of autograd", AUTOGRAD, "grad * 0.5", "grad * 0.25"),
    same("methods in another order", NET.replace("    gain = 2.0\n", "").replace("        return torch.relu(x)\n", "        return torch.relu(x)\n    gain = 2.0\n"),
         "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.inner = nn.Linear(4, 2)\n",
         "class Net(nn.Module):\n    def extra(self):\n        return 1\n    def __init__(self):\n        super().__init__()\n        self.inner = nn.Linear(4, 2)\n    del extra\n"),
    same("a class's docstring", NET, "    gain = 2.0\n", "    '''A net.'''\n    gain = 2.0\n"),
    same("a class attribute's annotation", NET, "gain = 2.0", "gain: float = 2.0"),
    same("annotations of methods", NET, "def forward(self, x):", "def forward(self, x: torch.Tensor) -> torch.Tensor:"),
    same("a class's name", BASES, "Base", "Foundation"),
    same("a cached property that was used", CACHED, "def net(hp)", "SIZES.width\ndef net(hp)"),
    same("another member of the enum", ENUM.replace("KIND.value", "3").replace("Kind.SMALL.value", "3"), "WIDE = 5", "WIDE = 6"),
    same("an instance made before", AUTOGRAD, "def net(hp)", "Net(4, 2)\ndef net(hp)"),
    same("a pickled instance", CALLABLE, "net = builder.made", "import pickle\npickle.dumps(builder)\nnet = builder.made"),
    same("a data class's annotation", DATA, "width: int = 3", "width: 'int' = 3"),
]  # fmt: skip
