"""Programs as people write them: registries, configs, factories, plugins, packages."""

from __future__ import annotations

from tests.identity.edits.case import Edit, files

RESEARCH = {
    "program.py": "from project import build_model\ndef net(hp):\n    return build_model({'name': 'mlp', 'width': hp['width']})\n",
    "project/__init__.py": "from project.models import build_model\nfrom project import losses\n__all__ = ['build_model']\n",
    "project/registry.py": "class Registry(dict):\n    def register(self, name=None):\n        def keep(cls):\n            self[name or cls.__name__] = cls\n            return cls\n        return keep\nMODELS = Registry()\nBLOCKS = Registry()\n",
    "project/models/__init__.py": "from ..registry import MODELS\nfrom . import mlp, cnn\ndef build_model(config):\n    config = dict(config)\n    return MODELS[config.pop('name')](**config)\n",
    "project/models/mlp.py": "from torch import nn\nfrom ..registry import MODELS, BLOCKS\nfrom .blocks import Block\n@MODELS.register('mlp')\nclass MLP(nn.Module):\n    def __init__(self, width, depth=2):\n        super().__init__()\n        self.body = nn.Sequential(*[BLOCKS['Block'](4 if i == 0 else width, width) for i in range(depth)])\n        self.head = nn.Linear(width, 2)\n    def forward(self, x):\n        return self.head(self.body(x))\n",
    "project/models/blocks.py": "from torch import nn\nfrom ..registry import BLOCKS\n@BLOCKS.register()\nclass Block(nn.Module):\n    expansion = 1\n    def __init__(self, inside, outside):\n        super().__init__()\n        self.inner = nn.Linear(inside, outside * self.expansion)\n        self.bend = nn.ReLU()\n    def forward(self, x):\n        return self.bend(self.inner(x))\n",
    "project/models/cnn.py": "from torch import nn\nfrom ..registry import MODELS\n@MODELS.register('cnn')\nclass CNN(nn.Module):\n    kernel = 3\n",
    "project/losses.py": "def unused():\n    return 1\n",
}  # fmt: skip
CONFIGURED = {
    "program.py": "from config import Config\nfrom factory import make\nCONFIG = Config.load({'model': {'width': 5}})\ndef net(hp):\n    return make(CONFIG)\n",
    "config.py": "from dataclasses import dataclass, field, fields\n@dataclass(frozen=True)\nclass Model:\n    width: int = 3\n    activation: str = 'relu'\n@dataclass(frozen=True)\nclass Config:\n    model: Model = field(default_factory=Model)\n    seed: int = 0\n    @classmethod\n    def load(cls, data):\n        return cls(model=Model(**data.get('model', {})))\n",
    "factory.py": "from torch import nn\nACTIVATIONS = {'relu': nn.ReLU, 'tanh': nn.Tanh}\nINITS = {'zeros': lambda m: nn.init.zeros_(m.bias), 'ones': lambda m: nn.init.ones_(m.bias)}\ndef make(config, init='zeros'):\n    first = nn.Linear(4, config.model.width)\n    INITS[init](first)\n    return nn.Sequential(first, ACTIVATIONS[config.model.activation](), nn.Linear(config.model.width, 2))\n",
}  # fmt: skip
ABSTRACT = {
    "program.py": "from base import Experiment\nclass Mine(Experiment):\n    width = 3\n    def layers(self):\n        return [nn.Linear(4, self.width), nn.Linear(self.width, 2)]\nnet = Mine().model\n",
    "base.py": "import abc\nfrom torch import nn\nclass Experiment(abc.ABC):\n    @abc.abstractmethod\n    def layers(self): ...\n    def extra(self):\n        return nn.Tanh()\n    def model(self, hp):\n        first, *rest = self.layers()\n        return nn.Sequential(first, self.extra(), *rest)\n",
}  # fmt: skip
PIPELINE = {
    "program.py": "from steps import PIPELINE\ndef net(hp):\n    model = nn.Linear(4, 2)\n    for step in PIPELINE:\n        model = step(model)\n    return model\n",
    "steps.py": "import functools\nimport torch\nfrom torch import nn\ndef scaled(model, by):\n    with torch.no_grad():\n        for parameter in model.parameters():\n            parameter.mul_(by)\n    return model\ndef hooked(model):\n    model.register_forward_hook(after)\n    return model\ndef after(module, inputs, output):\n    return output * 1.5\nPIPELINE = [functools.partial(scaled, by=0.5), hooked, lambda model: model]\n",
}  # fmt: skip
ARGUMENTS = {
    "program.py": "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--width', type=int, default=3)\nargs = parser.parse_args([])\ndef net(hp):\n    return nn.Sequential(nn.Linear(4, args.width), nn.Linear(args.width, 2))\n",
}
INITIAL = {
    "program.py": "from inits import apply\ndef net(hp):\n    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))\n    model.apply(apply)\n    return model\n",
    "inits.py": "from functools import singledispatch\nfrom torch import nn\nGAIN = nn.init.calculate_gain('relu')\n@singledispatch\ndef apply(module):\n    pass\n@apply.register\ndef _(module: nn.Linear):\n    nn.init.xavier_uniform_(module.weight, gain=GAIN)\n@apply.register(nn.BatchNorm1d)\ndef _norm(module):\n    nn.init.constant_(module.weight, 0.9)\n",
}  # fmt: skip
TEACHER = {
    "program.py": "torch.manual_seed(1)\nTEACHER = nn.Linear(4, 2).requires_grad_(False)\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.inner = nn.Linear(4, 2)\n    def forward(self, x):\n        return self.inner(x) + TEACHER(x)\ndef net(hp):\n    return Net()\n",
}
PYDANTIC = {
    "program.py": "from pydantic import BaseModel\nclass Config(BaseModel):\n    width: int = 3\n    def total(self):\n        return self.width + 1\nCONFIG = Config()\ndef net(hp):\n    return nn.Sequential(nn.Linear(4, CONFIG.total()), nn.Linear(Config().total(), 2))\n",
}
COUPLED = {
    "program.py": "from a import even\nclass Net(nn.Linear):\n    def forward(self, x):\n        return super().forward(x) * even(5)\ndef net(hp):\n    return Net(4, 2)\n",
    "a.py": "def even(n):\n    from b import odd\n    return 1.0 if n == 0 else odd(n - 1)\n",
    "b.py": "def odd(n):\n    from a import even\n    return 0.5 if n == 0 else even(n - 1)\n",
}  # fmt: skip
SIX = "".join(
    f"def f{i}(n):\n    return {i} + sum(f(n - 1) for f in (f0, f1, f2, f3, f4, f5, f6)) if n > 0 else {i} / 7\n"
    for i in range(7)
)
MUTUAL = {
    "program.py": SIX
    + "def net(hp):\n    model = nn.Linear(4, 2)\n    model.bias.data.fill_(f0(1) / 100)\n    return model\n"
}
MIXED = {
    "program.py": "from lib import *\nfrom lib.nets import Net as Base\nclass Net(Base):\n    act = staticmethod(torch.tanh)\ndef net(hp):\n    return Net(**DEFAULTS)\n",
    "lib/__init__.py": "from .settings import *\n",
    "lib/settings.py": "__all__ = ['DEFAULTS']\nHIDDEN = 3\nDEFAULTS = dict(width=HIDDEN, bias=True)\n",
    "lib/nets.py": "from torch import nn\nclass Net(nn.Module):\n    act = None\n    def __init__(self, width, bias):\n        super().__init__()\n        self.a, self.b = nn.Linear(4, width, bias=bias), nn.Linear(width, 2, bias=bias)\n    def forward(self, x):\n        return self.b(self.act(self.a(x)))\n",
}  # fmt: skip

EDITS: list[Edit] = [
    files("a class in a registry of a package", RESEARCH, "project/models/mlp.py", "depth=2", "depth=3"),
    files("a block that a registry names", RESEARCH, "project/models/blocks.py", "nn.ReLU()", "nn.Tanh()"),
    files("a class attribute of a block", RESEARCH, "project/models/blocks.py", "self.bend(self.inner(x))", "self.bend(self.inner(x)) * self.expansion * 2"),
    files("what a factory does with a config", RESEARCH, "project/models/__init__.py", "(**config)", "(**{**config, 'width': 7})"),
    files("a part of the package that is not used", RESEARCH, "project/losses.py", "return 1", "return 2", changes=False),
    files("a docstring deep in a package", RESEARCH, "project/models/blocks.py", "    expansion = 1\n", "    'A block.'\n    expansion = 1\n", changes=False),
    files("a value in a config", CONFIGURED, "program.py", "'width': 5", "'width': 6"),
    files("a default in a config class", CONFIGURED, "config.py", "activation: str = 'relu'", "activation: str = 'tanh'"),
    files("a factory's default", CONFIGURED, "factory.py", "init='zeros'", "init='ones'"),
    files("a lambda of a factory", CONFIGURED, "factory.py", "nn.init.zeros_(m.bias)", "nn.init.constant_(m.bias, 0.1)"),
    files("a class in a factory's dictionary", CONFIGURED, "factory.py", "'relu': nn.ReLU", "'relu': nn.GELU"),
    files("a method of an abstract base", ABSTRACT, "base.py", "nn.Tanh()", "nn.Sigmoid()"),
    files("a method that an abstract base calls", ABSTRACT, "program.py", "nn.Linear(4, self.width)", "nn.Linear(4, self.width, bias=False)"),
    files("a step of a pipeline", PIPELINE, "steps.py", "by=0.5", "by=0.25"),
    files("a hook of a pipeline", PIPELINE, "steps.py", "output * 1.5", "output * 2.5"),
    files("the order of a pipeline", PIPELINE, "steps.py", "lambda model: model]", "lambda model: model.requires_grad_(True), hooked]"),
    files("a default of the command line", ARGUMENTS, "program.py", "default=3", "default=4"),
    files("help of the command line", ARGUMENTS, "program.py", "default=3", "default=3, help='units'", changes=False),
    files("an initialization by type", INITIAL, "inits.py", "xavier_uniform_", "xavier_normal_"),
    files("an initialization's constant", INITIAL, "inits.py", "0.9", "0.8"),
    files("a gain that is computed", INITIAL, "inits.py", "calculate_gain('relu')", "calculate_gain('tanh')"),
    files("a teacher's weights", TEACHER, "program.py", "manual_seed(1)", "manual_seed(2)"),
    files("a field of pydantic", PYDANTIC, "program.py", "width: int = 3", "width: int = 4"),
    files("a method of pydantic", PYDANTIC, "program.py", "self.width + 1", "self.width + 2"),
    files("modules that import each other in functions", COUPLED, "b.py", "0.5 if", "0.25 if"),
    files("seven functions that call each other", MUTUAL, "program.py", "3 / 7", "4 / 7"),
    files("seven functions in another order", MUTUAL, "program.py", "def net(hp)", "f0, f1 = f0, f1\ndef net(hp)", changes=False),
    files("a constant behind a star import", MIXED, "lib/settings.py", "HIDDEN = 3", "HIDDEN = 4"),
    files("a method of an imported base", MIXED, "lib/nets.py", "self.b(self.act", "self.b(2 * self.act"),
    files("a static method that overrides", MIXED, "program.py", "torch.tanh", "torch.sigmoid"),
]  # fmt: skip
