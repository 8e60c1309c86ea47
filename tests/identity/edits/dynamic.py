"""Computed names: modules count as a whole if they can be reached that way."""

from __future__ import annotations

from tests.identity.edits.case import Edit, edit, files

NETS = "from torch import nn\ndef net_a():\n    return nn.Linear(4, 2)\ndef net_b():\n    return nn.Linear(4, 2, bias=False)\n"
CHANGED = ("return nn.Linear(4, 2)\n", "return nn.Linear(4, 2, bias=False)\n")
BY_GETATTR = {
    "program.py": "import nets\ndef net(hp):\n    return getattr(nets, 'net_' + hp['kind'])()\n",
    "nets.py": NETS,
}
BY_IMPORTLIB = {
    "program.py": "import importlib\ndef net(hp):\n    return importlib.import_module('nets').net_a()\n",
    "nets.py": NETS,
}
BY_PREFIX = {"program.py": "import importlib\ndef net(hp):\n    return importlib.import_module('zoo.' + hp['kind']).build()\n",
             "zoo/__init__.py": "", "zoo/a.py": "from torch import nn\ndef build():\n    return nn.Linear(4, 2)\n",
             "zoo/b.py": "from torch import nn\ndef build():\n    return nn.Linear(4, 2)\n"}  # fmt: skip
BY_FORMAT = {
    **BY_PREFIX,
    "program.py": "from importlib import import_module\ndef net(hp):\n    return import_module(f\"zoo.{hp['kind']}\").build()\n",
}
BY_RELATIVE = {"program.py": "from zoo import load\ndef net(hp):\n    return load(hp['kind'])\n",
               "zoo/__init__.py": "import importlib\ndef load(name):\n    return importlib.import_module('.' + name, __name__).build()\n",
               "zoo/a.py": "from torch import nn\ndef build():\n    return nn.Linear(4, 2)\n"}  # fmt: skip
COMPUTED = {"program.py": "import importlib\ndef net(hp):\n    return importlib.import_module(hp['kind']).build()\n",
            "a.py": "from torch import nn\ndef build():\n    return nn.Linear(4, 2)\n"}  # fmt: skip
DUNDER = {"program.py": "def net(hp):\n    return __import__('nets').net_a()\n", "nets.py": NETS}
BY_VARS = {
    "program.py": "import nets\ndef net(hp):\n    return vars(nets)['net_' + hp['kind']]()\n",
    "nets.py": NETS,
}
BY_DICT = {
    "program.py": "import nets\ndef net(hp):\n    return nets.__dict__['net_' + hp['kind']]()\n",
    "nets.py": NETS,
}
BY_MODULES = {
    "program.py": "import sys\nimport nets\ndef net(hp):\n    return sys.modules['nets'].net_a()\n",
    "nets.py": NETS,
}
MEMBERS = {
    "program.py": "import inspect\nimport nets\ndef net(hp):\n    return dict(inspect.getmembers(nets))['net_a']()\n",
    "nets.py": NETS,
}
PLUGINS = {"program.py": "from plugins import KNOWN\ndef net(hp):\n    return KNOWN[hp['kind']]()\n",
           "plugins/__init__.py": "import importlib, pkgutil\nKNOWN = {}\nfor found in pkgutil.iter_modules(__path__):\n    importlib.import_module(f'{__name__}.{found.name}')\n",
           "plugins/first.py": "from torch import nn\nfrom plugins import KNOWN\nKNOWN['a'] = lambda: nn.Linear(4, 2)\n"}  # fmt: skip
OWN = """
def net_a():
    return nn.Linear(4, 2)
def net_b():
    return nn.Linear(4, 2, bias=False)
def net(hp):
    return globals()["net_" + hp["kind"]]()
"""
BY_SYS = OWN.replace(
    'globals()["net_" + hp["kind"]]()', 'getattr(sys.modules[__name__], "net_" + hp["kind"])()'
).replace("def net_a", "import sys\ndef net_a", 1)
EVAL = OWN.replace('globals()["net_" + hp["kind"]]()', 'eval("net_" + hp["kind"] + "()")')
EXEC = OWN.replace(
    'return globals()["net_" + hp["kind"]]()',
    'space = {}\n    exec("made = net_a()", globals(), space)\n    return space["made"]',
)
LAZY = {
    "program.py": "def net(hp):\n    return eval('lazy')(hp)\ndef lazy(hp):\n    import nets\n    return nets.net_a()\n",
    "nets.py": NETS,
}
GENERATED = "exec('def made(x):\\n    return x * 2')\nclass Net(nn.Linear):\n    def forward(self, x):\n        return made(super().forward(x))\ndef net(hp):\n    return Net(4, 2)\n"

EDITS: list[Edit] = [
    files("getattr on a module", BY_GETATTR, "nets.py", *CHANGED),
    files("vars of a module", BY_VARS, "nets.py", *CHANGED),
    files("the dictionary of a module", BY_DICT, "nets.py", *CHANGED),
    files("members of a module", MEMBERS, "nets.py", *CHANGED),
    files("importlib with a name", BY_IMPORTLIB, "nets.py", *CHANGED),
    files("importlib with the beginning of a name", BY_PREFIX, "zoo/a.py", *CHANGED),
    files("importlib with a formatted name", BY_FORMAT, "zoo/a.py", *CHANGED),
    files("importlib with a relative name", BY_RELATIVE, "zoo/a.py", *CHANGED),
    files("importlib with a name from the values", COMPUTED, "a.py", *CHANGED),
    files("__import__", DUNDER, "nets.py", *CHANGED),
    files("sys.modules", BY_MODULES, "nets.py", *CHANGED),
    files("plugins found in a folder", PLUGINS, "plugins/first.py", "nn.Linear(4, 2)", "nn.Linear(4, 2, bias=False)"),
    edit("globals", OWN, *CHANGED),
    edit("the program's own module in sys.modules", BY_SYS, *CHANGED),
    edit("eval", EVAL, *CHANGED),
    edit("exec", EXEC, *CHANGED),
    files("an import behind eval", LAZY, "nets.py", *CHANGED),
    edit("code that was generated", GENERATED, "x * 2", "x * 3"),
    edit("getattr on a library", "def net(hp):\n    return nn.Sequential(nn.Linear(4, 2), getattr(nn, 'Tanh')())\n", "'Tanh'", "'Sigmoid'"),
    files("getattr: a comment in the module", BY_GETATTR, "nets.py", "def net_b", "# wide\ndef net_b", changes=False),
    files("getattr: a docstring in the module", BY_GETATTR, "nets.py", "def net_b():\n", "def net_b():\n    '''B.'''\n", changes=False),
    files("importlib: layout of the module", BY_IMPORTLIB, "nets.py", "nn.Linear(4, 2)\n", "nn.Linear(\n        4, 2\n    )\n", changes=False),
    files("getattr: a function of the module that is not used", BY_GETATTR, "nets.py", "bias=False", "bias=True", changes=False,
          alarm="counts as a whole because it can be reached by a computed name"),
]  # fmt: skip
