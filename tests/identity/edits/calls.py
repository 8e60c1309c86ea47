"""Calls and arguments: what is called, with which names, values and defaults."""

from __future__ import annotations

from tests.identity.edits.case import edit

NET = "def net(hp):\n    return nn.Linear(4, 2)\n"
SGD = "def optimizer(params, hp):\n    return torch.optim.SGD(params, lr=hp['lr'], momentum=0.9)\n" + NET
HELPER = """
def scale(x, factor=2.0, *, shift=0.0):
    return x * factor + shift
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
    def forward(self, x):
        return scale(self.inner(x), 3.0, shift=0.5)
def net(hp):
    return Net()
"""
LOOP = """
class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4 if i == 0 else width, width) for i in range(depth)])
        self.last = nn.Linear(width, 2)
    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = torch.relu(layer(x)) if index % 2 == 0 else torch.tanh(layer(x))
        return self.last(x)
def net(hp):
    return Net(hp["width"], hp["depth"])
"""
CONTROL = """
def body(x):
    if x.shape[0] > 2 and x.dim() == 2:
        y = x * 2
    elif x.dim() == 3:
        y = x + 1
    else:
        y = x
    while y.dim() > 2:
        y = y[0]
    try:
        y = y / 1.5
    except ZeroDivisionError:
        y = y
    finally:
        y = y + 0.25
    return y
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
    def forward(self, x):
        return self.inner(body(x))
def net(hp):
    return Net()
"""
FORMS = """
import asyncio
def numbers(n):
    for i in range(n):
        yield i * 2
def picked(kind):
    match kind:
        case "a" | "b":
            return 1.5
        case _:
            return 2.5
def widened(n):
    return (m := n + 3) * m
async def later():
    return 0.5
def only(a, /, b, *, c=0.25):
    return a + b * c
def star(*args, **kwargs):
    return sum(args) + sum(kwargs.values())
def factor(hp):
    first = sum(numbers(3)) + sum(i * i for i in range(2)) + len({i for i in (1, 2)})
    second = picked(hp["kind"]) + widened(1) + asyncio.run(later())
    text = len(f"{hp['width']:>4}{'ab'!r}")
    chosen = {"one": lambda v: v + 1, "two": lambda v: v * 3}
    third = only(1, 2) + star(1, 2, x=3) + chosen["two"](text)
    a, *rest = [1, 2, 3]
    return (first + second + third + a - rest[-1]) / 50
def net(hp):
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.mul_(factor(hp))
    return model
"""

EDITS = [
    edit("a keyword argument's name", SGD, "momentum=0.9", "weight_decay=0.9"),
    edit("a keyword argument's value", SGD, "momentum=0.9", "momentum=0.8"),
    edit("a keyword argument more", SGD, "momentum=0.9", "momentum=0.9, nesterov=True"),
    edit("a keyword argument less", SGD, ", momentum=0.9", ""),
    edit("two keyword names swapped", SGD, "lr=hp['lr'], momentum=0.9", "momentum=hp['lr'], lr=0.9"),
    edit("another class called", SGD, "torch.optim.SGD(params, lr=hp['lr'], momentum=0.9)",
         "torch.optim.RMSprop(params, lr=hp['lr'], momentum=0.9)"),
    edit("a positional argument", HELPER, "3.0", "4.0"),
    edit("positional instead of the default", HELPER, "(self.inner(x), 3.0, ", "(self.inner(x), "),
    edit("a keyword-only default used", HELPER + "\n", ", shift=0.5", ""),
    edit("a default that is used", HELPER.replace(", 3.0, shift=0.5", ""), "factor=2.0", "factor=2.5"),
    edit("a keyword-only default", HELPER.replace(", shift=0.5", ""), "shift=0.0", "shift=0.1"),
    edit("an operator", HELPER, "+ shift", "- shift"),
    edit("operands swapped", HELPER, "x * factor + shift", "factor + shift * x"),
    edit("another function of torch", LOOP, "torch.tanh", "torch.sigmoid"),
    edit("branches swapped", LOOP, "index % 2 == 0", "index % 2 == 1"),
    edit("range begins elsewhere", LOOP, "range(depth)", "range(depth + 1)"),
    edit("names of hp swapped", LOOP, 'Net(hp["width"], hp["depth"])', 'Net(hp["depth"], hp["width"])'),
    edit("a layer's argument", LOOP, "nn.Linear(width, 2)", "nn.Linear(width, 2, bias=False)"),
    edit("a condition's constant", CONTROL, "> 2 and", "> 4 and"),
    edit("and becomes or", CONTROL.replace("> 2", "> 100"), "and x.dim()", "or x.dim()"),
    edit("a statement in a branch", CONTROL, "y = x * 2", "y = x * 3"),
    edit("finally", CONTROL, "y + 0.25", "y + 0.5"),
    edit("in a try", CONTROL, "y / 1.5", "y / 2.5"),
    edit("a try that fails now", CONTROL, "y = y / 1.5", "y = y / 1.5 / (1 // 0)"),
    edit("a generator", FORMS, "yield i * 2", "yield i * 3"),
    edit("a generator expression", FORMS, "i * i for i in range(2)", "i * i for i in range(4)"),
    edit("a set comprehension", FORMS, "for i in (1, 2)}", "for i in (1, 2, 3)}"),
    edit("a case's value", FORMS, "return 1.5", "return 1.75"),
    edit("a case's pattern", FORMS, '"a" | "b"', '"c" | "b"'),
    edit("a walrus", FORMS, "n + 3", "n + 4"),
    edit("a coroutine", FORMS, "return 0.5", "return 0.75"),
    edit("a positional-only function's default", FORMS, "c=0.25", "c=0.75"),
    edit("arguments by star", FORMS, "sum(args) +", "sum(args) * 2 +"),
    edit("a keyword by double star", FORMS, "x=3", "x=4"),
    edit("a format", FORMS, ":>4", ":>9"),
    edit("a conversion", FORMS, "'ab'!r", "'ab'"),
    edit("a lambda in a dictionary", FORMS, "v * 3", "v * 4"),
    edit("the key of a lambda", FORMS, 'chosen["two"]', 'chosen["one"]'),
    edit("unpacking", FORMS, "a, *rest = [1, 2, 3]", "*rest, a = [1, 2, 3]"),
    edit("an index", FORMS, "rest[-1]", "rest[0]"),
    edit("the order of draws", "def net(hp):\n    a = nn.Linear(4, 3)\n    b = nn.Linear(3, 2)\n    return nn.Sequential(a, b)\n",
         "    a = nn.Linear(4, 3)\n    b = nn.Linear(3, 2)\n", "    b = nn.Linear(3, 2)\n    a = nn.Linear(4, 3)\n"),
    edit("a draw more", NET, "    return", "    torch.rand(3)\n    return"),
    edit("a statement whose value is not used", NET, "    return", "    nn.Linear(1, 1)\n    return"),
    edit("another seed", NET, "    return", "    torch.manual_seed(5)\n    return"),
    edit("a call in a message", "def told():\n    torch.rand(1)\n    return 1\ndef net(hp):\n    print(1)\n    return nn.Linear(4, 2)\n",
         "print(1)", "print(told())"),
    edit("a method in a message", NET, "    return", "    w = torch.zeros(1)\n    print(w.normal_())\n    return"),
    edit("print is the user's own", "def print(x):\n    torch.rand(x)\n" + NET.replace("    return", "    print(1)\n    return"),
         "    print(1)\n", "    print(1)\n    print(2)\n"),
    edit("a helper that is only called", "def _help(n):\n    return n + 1\ndef net(hp):\n    return nn.Sequential(nn.Linear(4, _help(2)), nn.Linear(3, 2))\n",
         "n + 1", "n + 1 + 0 * len([torch.rand(1)])"),
]  # fmt: skip
