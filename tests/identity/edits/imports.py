"""Imports: modules, packages, re-exports, imports in functions, files named like a library's."""

from __future__ import annotations

from tests.identity.edits.case import Edit, files

USE = "def net(hp):\n    return build(hp)\n"
LIB = "from torch import nn\nWIDTH = 3\ndef build(hp):\n    return nn.Sequential(nn.Linear(4, WIDTH), nn.Linear(WIDTH, 2))\n"
OTHER = "\ndef unused():\n    return 1\n"

PLAIN = {"program.py": "from lib import build\n" + USE, "lib.py": LIB + OTHER}
BY_MODULE = {"program.py": "import lib\ndef net(hp):\n    return lib.build(hp)\n", "lib.py": LIB + OTHER}
RENAMED = {"program.py": "import lib as l\ndef net(hp):\n    return l.build(hp)\n", "lib.py": LIB + OTHER}
STAR = {"program.py": "from lib import *\n" + USE, "lib.py": LIB + OTHER}
INSIDE = {"program.py": "def net(hp):\n    from lib import build\n    return build(hp)\n", "lib.py": LIB + OTHER}
INSIDE_MODULE = {"program.py": "def net(hp):\n    import lib\n    return lib.build(hp)\n", "lib.py": LIB}
PACKAGE = {"program.py": "from pack import build\n" + USE, "pack/__init__.py": "from .inner import build\n",
           "pack/inner.py": "from . import sizes\nfrom torch import nn\ndef build(hp):\n    return nn.Sequential(nn.Linear(4, sizes.W), nn.Linear(sizes.W, 2))\n",
           "pack/sizes.py": "W = 3\nV = 9\n"}  # fmt: skip
DEEP = {"program.py": "import pack.sub.deep\ndef net(hp):\n    return pack.sub.deep.build(hp)\n",
        "pack/__init__.py": "", "pack/sub/__init__.py": "", "pack/sub/deep.py": LIB}  # fmt: skip
DEEP_INSIDE = {**DEEP, "program.py": "def net(hp):\n    import pack.sub.deep\n    return pack.sub.deep.build(hp)\n"}
SUBMODULE_INSIDE = {
    **DEEP,
    "program.py": "def net(hp):\n    from pack.sub import deep\n    return deep.build(hp)\n",
}
AS_INSIDE = {**DEEP, "program.py": "def net(hp):\n    import pack.sub.deep as d\n    return d.build(hp)\n"}
RELATIVE = {"program.py": "from pack.nets import build\n" + USE, "pack/__init__.py": "",
            "pack/nets.py": "def build(hp):\n    from .blocks import block\n    return block(3)\n",
            "pack/blocks.py": "from torch import nn\nfrom .sizes import extra\ndef block(w):\n    return nn.Sequential(nn.Linear(4, w + extra()), nn.Linear(w + extra(), 2))\n",
            "pack/sizes.py": "def extra():\n    return 1\n"}  # fmt: skip
RELATIVE_MODULE = {
    **RELATIVE,
    "pack/nets.py": "def build(hp):\n    from . import blocks\n    return blocks.block(3)\n",
}
RELATIVE_UP = {"program.py": "from pack.sub.nets import build\n" + USE, "pack/__init__.py": "", "pack/sub/__init__.py": "",
               "pack/sub/nets.py": "def build(hp):\n    from ..blocks import block\n    return block(3)\n",
               "pack/blocks.py": RELATIVE["pack/blocks.py"], "pack/sizes.py": RELATIVE["pack/sizes.py"]}  # fmt: skip
REEXPORTED = {"program.py": "import pack\ndef net(hp):\n    return pack.build(hp)\n",
              "pack/__init__.py": "from pack.a import build\nfrom pack.b import *\n",
              "pack/a.py": "import pack\nfrom torch import nn\ndef build(hp):\n    return nn.Sequential(nn.Linear(4, pack.WIDE), nn.Linear(pack.WIDE, 2))\n",
              "pack/b.py": "WIDE = 3\n"}  # fmt: skip
CIRCLE = {"program.py": "from one import build\n" + USE,
          "one.py": "import two\nfrom torch import nn\nW = 3\ndef build(hp):\n    return nn.Linear(4, two.out(2))\n",
          "two.py": "import one\ndef out(n):\n    return n if n < one.W else one.W - 1\n"}  # fmt: skip
NAMED = {"program.py": "import statistics\ndef net(hp):\n    return statistics.build(hp)\n", "statistics.py": LIB}
QUEUE = {"program.py": "from queue import build\n" + USE, "queue.py": LIB}
NAMED_INSIDE = {
    "program.py": "def net(hp):\n    import statistics\n    return statistics.build(hp)\n",
    "statistics.py": LIB,
}
TOKEN = {"program.py": "from token.nets import build\n" + USE, "token/__init__.py": "", "token/nets.py": LIB}
CONDITIONAL = {
    "program.py": "try:\n    from fast import build\nexcept ImportError:\n    from lib import build\n" + USE,
    "lib.py": LIB,
}
CHOSEN = {"program.py": "import lib\nif lib.FLAG:\n    def net(hp):\n        return nn.Linear(4, 2)\nelse:\n    def net(hp):\n        return nn.Linear(4, 2, bias=False)\n",
          "lib.py": "FLAG = True\n"}  # fmt: skip
GETATTR = {"program.py": "import lib\ndef net(hp):\n    return nn.Sequential(nn.Linear(4, lib.width), nn.Linear(lib.width, 2))\n",
           "lib.py": "def __getattr__(name):\n    if name == 'width':\n        return 3\n    raise AttributeError(name)\n"}  # fmt: skip
VALUE = {
    "program.py": "import lib\ndef made(module):\n    return module.build({})\ndef net(hp):\n    return made(lib)\n",
    "lib.py": LIB,
}
CLOSED = {
    "program.py": "def maker():\n    import lib\n    def net(hp):\n        return lib.build(hp)\n    return net\nnet = maker()\n",
    "lib.py": LIB,
}
SIDE = {"program.py": "import plugin\nfrom registry import MADE\ndef net(hp):\n    return MADE['net']()\n", "registry.py": "MADE = {}\n",
        "plugin.py": "from torch import nn\nfrom registry import MADE\nMADE['net'] = lambda: nn.Linear(4, 2)\n"}  # fmt: skip
STATIC = {
    "program.py": "def net(hp):\n    import outer\n    return outer.build(hp)\n",
    "outer.py": "from inner import build\n",
    "inner.py": LIB,
}
CHAIN = {
    "program.py": "import a\ndef net(hp):\n    return a.b.c.build(hp)\n",
    "a.py": "import b\n",
    "b.py": "import c\n",
    "c.py": LIB,
}
OBJECTS = {"program.py": "from conf import CONF\ndef net(hp):\n    return nn.Sequential(nn.Linear(4, CONF['model']['width']), nn.Linear(CONF['model']['width'], 2))\n",
           "conf.py": "from sizes import SIZE\nCONF = {'model': {'width': SIZE}}\n", "sizes.py": "SIZE = 3\n"}  # fmt: skip

W, V = "WIDTH = 3", "WIDTH = 5"
EDITS: list[Edit] = [
    files("a constant of a module, imported by name", PLAIN, "lib.py", W, V),
    files("a function of a module, imported by name", PLAIN, "lib.py", "nn.Linear(WIDTH, 2)", "nn.Linear(WIDTH, 2, bias=False)"),
    files("a constant of a module", BY_MODULE, "lib.py", W, V),
    files("a module under another name", RENAMED, "lib.py", W, V),
    files("a star import", STAR, "lib.py", W, V),
    files("from a module, inside the function", INSIDE, "lib.py", W, V),
    files("a module inside the function", INSIDE_MODULE, "lib.py", W, V),
    files("re-exported by a package", PACKAGE, "pack/inner.py", "nn.Linear(4, sizes.W)", "nn.Linear(4, sizes.W, bias=False)"),
    files("a constant two modules away", PACKAGE, "pack/sizes.py", "W = 3", "W = 5"),
    files("a package re-exports another", {**PACKAGE, "pack/other.py": "from torch import nn\ndef build(hp):\n    return nn.Linear(4, 2)\n"},
          "pack/__init__.py", ".inner", ".other"),
    files("a module deep in packages", DEEP, "pack/sub/deep.py", W, V),
    files("a deep module, inside the function", DEEP_INSIDE, "pack/sub/deep.py", W, V),
    files("a submodule by name, inside the function", SUBMODULE_INSIDE, "pack/sub/deep.py", W, V),
    files("a submodule renamed, inside the function", AS_INSIDE, "pack/sub/deep.py", W, V),
    files("what a package does when it is imported", DEEP_INSIDE, "pack/__init__.py", "", "import torch\ntorch.nn.Linear.reset_parameters = lambda self: (torch.nn.init.ones_(self.weight), torch.nn.init.zeros_(self.bias))\n"),
    files("a relative import inside a function", RELATIVE, "pack/blocks.py", "nn.Linear(4, w + extra())", "nn.Linear(4, w + extra(), bias=False)"),
    files("a relative import of that one", RELATIVE, "pack/sizes.py", "return 1", "return 2"),
    files("a relative import of a module", RELATIVE_MODULE, "pack/sizes.py", "return 1", "return 2"),
    files("a relative import from above", RELATIVE_UP, "pack/sizes.py", "return 1", "return 2"),
    files("re-exported by a star", REEXPORTED, "pack/b.py", "WIDE = 3", "WIDE = 5"),
    files("modules that import each other", CIRCLE, "two.py", "return n if", "return n + 0 * len([__import__('torch').rand(1)]) if"),
    files("a file named like the library's statistics", NAMED, "statistics.py", W, V),
    files("a file named like the library's queue", QUEUE, "queue.py", W, V),
    files("a file named like the library's, inside the function", NAMED_INSIDE, "statistics.py", W, V),
    files("a package named like the library's token", TOKEN, "token/nets.py", W, V),
    files("a conditional import", CONDITIONAL, "lib.py", W, V),
    Edit("a file that a conditional import finds now", CONDITIONAL_BEFORE := files("x", CONDITIONAL, "lib.py", W, W).before,
         {**CONDITIONAL_BEFORE, "fast.py": LIB.replace(W, V)}, True),
    files("a conditional definition", CHOSEN, "lib.py", "True", "False"),
    files("a module with __getattr__", GETATTR, "lib.py", "return 3", "return 5"),
    files("a module passed on", VALUE, "lib.py", W, V),
    files("a module that is captured", CLOSED, "lib.py", W, V),
    files("a module imported for what it registers", SIDE, "plugin.py", "nn.Linear(4, 2)", "nn.Linear(4, 2, bias=False)"),
    files("a module that a module inside a function imports", STATIC, "inner.py", W, V),
    files("a chain of modules", CHAIN, "c.py", W, V),
    files("a value made from another module's", OBJECTS, "sizes.py", "SIZE = 3", "SIZE = 5"),
    files("a function of the module that is not used", PLAIN, "lib.py", "return 1", "return 2", changes=False),
    files("a function that is not used, by module", BY_MODULE, "lib.py", "return 1", "return 2", changes=False),
    files("a constant that is not used", PACKAGE, "pack/sizes.py", "V = 9", "V = 8", changes=False),
    files("a function that is not used, of a module imported inside", INSIDE, "lib.py", "return 1", "return 2", changes=False,
          alarm="counts as a whole because a function imports it"),
    files("a comment in a module imported inside", INSIDE, "lib.py", W, W + "  # narrow", changes=False),
    files("a docstring in a module imported inside", INSIDE, "lib.py", "def unused():\n", "def unused():\n    'Unused.'\n", changes=False),
    files("an annotation in a module imported inside", INSIDE, "lib.py", "def build(hp):", "def build(hp: dict[str, int]) -> nn.Module:", changes=False),
    files("a message in a module imported inside", INSIDE, "lib.py", "def build(hp):\n", "def build(hp):\n    print('build')\n", changes=False),
    files("what only the main program does", {**INSIDE, "lib.py": LIB + "if __name__ == '__main__':\n    print(1)\n"}, "lib.py", "print(1)", "print(2, 3)", changes=False),
    files("an import beside it that is not used", PLAIN, "program.py", "from lib", "import json\nfrom lib", changes=False),
    files("imported by name instead of by module", BY_MODULE, "program.py", "import lib\ndef net(hp):\n    return lib.build(hp)",
          "from lib import build\ndef net(hp):\n    return build(hp)", changes=False),
    files("the order of imports", PLAIN, "program.py", "import torch\nfrom torch import nn\n", "from torch import nn\nimport torch\n", changes=False),
]  # fmt: skip
