"""Optimizers, losses and metrics of the user's."""

from __future__ import annotations

from tests.identity.edits.case import edit, same

NET = "def net(hp):\n    return nn.Linear(4, 2)\n"
OWN = """
class Mine(torch.optim.Optimizer):
    decay = 0.5
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(p.grad * group["lr"] * self.decay)
def optimizer(params, hp):
    return Mine(params, lr=hp["lr"])
"""
PLAIN_STEP = (
    OWN.replace("    @torch.no_grad()\n", "")
    .replace("        for group in self", "        torch.set_grad_enabled(False)\n        for group in self")
    .replace("self.decay)\n", "self.decay)\n        torch.set_grad_enabled(True)\n")
)
LIBRARY = "class Mine(torch.optim.SGD):\n    extra = 1.0\n    def step(self, closure=None):\n        super().step()\ndef optimizer(params, hp):\n    return Mine(params, lr=hp['lr'])\n"
LOSS = """
SMOOTHING = 0.1
def weighted(values, weight=1.0):
    return values.mean() * weight
def loss(output, target):
    return weighted(F.cross_entropy(output, target, reduction="none", label_smoothing=SMOOTHING), 2.0)
"""
LOSS_OBJECT = "loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))\n"
LOSS_CLASS = """
class Focal(nn.Module):
    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma
    def forward(self, output, target):
        value = F.cross_entropy(output, target, reduction="none")
        return ((1 - torch.exp(-value)) ** self.gamma * value).mean()
loss = Focal(2.0)
"""
LOSS_PARTIAL = "import functools\nloss = functools.partial(F.cross_entropy, label_smoothing=0.1)\n"
LOSS_LAMBDA = "loss = lambda output, target: F.cross_entropy(output, target) * 2\n"
METRICS = """
def error(output, target):
    return (output.argmax(1) != target).float().mean()
metrics = {"error": error}
"""

EDITS = [
    edit("an optimizer's step", OWN, "* self.decay", "+ self.decay", net=NET),
    edit("an optimizer's attribute", OWN, "decay = 0.5", "decay = 0.25", net=NET),
    edit("an optimizer's argument", OWN, 'lr=hp["lr"]', 'lr=hp["lr"] * 2', net=NET),
    edit("an optimizer's step after it was used", OWN + "def prepare():\n    Mine([torch.zeros(1)])\n", "* self.decay", "+ self.decay", net=NET),
    edit("an optimizer without a decorated step", PLAIN_STEP, "* self.decay", "+ self.decay", net=NET),
    edit("a step that calls the library's", LIBRARY, "super().step()", "super().step()\n        super().step()", net=NET),
    edit("an optimizer by name", "optimizer = 'sgd'\n", "'sgd'", "'adam'", net=NET),
    edit("another class of optimizer", "optimizer = torch.optim.SGD\n", "SGD", "Adam", net=NET),
    edit("a loss's constant", LOSS, "SMOOTHING = 0.1", "SMOOTHING = 0.2", net=NET),
    edit("a loss's helper", LOSS, "values.mean()", "values.sum()", net=NET),
    edit("a loss's argument", LOSS, "2.0)", "3.0)", net=NET),
    edit("a loss's keyword", LOSS, 'reduction="none", label_smoothing=SMOOTHING', 'reduction="none"', net=NET),
    edit("a loss that is an object: its weights", LOSS_OBJECT, "[1.0, 2.0]", "[1.0, 3.0]", net=NET),
    edit("a loss that is an object: another class", LOSS_OBJECT, "nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))", "nn.CrossEntropyLoss()", net=NET),
    edit("a loss of one's own: its setting", LOSS_CLASS, "Focal(2.0)", "Focal(3.0)", net=NET),
    edit("a loss of one's own: its formula", LOSS_CLASS, "* value).mean()", "* value).sum()", net=NET),
    edit("a partial loss", LOSS_PARTIAL, "label_smoothing=0.1", "label_smoothing=0.2", net=NET),
    edit("a lambda", LOSS_LAMBDA, "* 2", "* 3", net=NET),
    edit("a metric", METRICS, "!=", "==", net=NET),
    edit("a metric's name", METRICS, '"error": error', '"wrong": error', net=NET),
    same("an optimizer's class after it was used", OWN + "def prepare():\n    pass\n", "    pass\n", "    Mine([torch.zeros(1)])\n", net=NET),
    same("an undecorated optimizer's class after it was used", PLAIN_STEP + "def prepare():\n    pass\n", "    pass\n", "    Mine([torch.zeros(1)]).step()\n", net=NET),
    same("a subclass of the library's after it was used", LIBRARY + "def prepare():\n    pass\n", "    pass\n", "    Mine([torch.zeros(1)], lr=0.1).step()\n", net=NET),
    same("a library's optimizer after it was used", "optimizer = torch.optim.SGD\ndef prepare():\n    pass\n", "    pass\n", "    torch.optim.SGD([torch.zeros(1)], lr=0.1).step()\n", net=NET),
    same("a loss that was called before", LOSS_CLASS, "loss = Focal(2.0)\n", "loss = Focal(2.0)\nloss(torch.zeros(2, 2), torch.zeros(2, dtype=torch.long))\n", net=NET),
    same("a loss written as a function of the library", "loss = F.cross_entropy\n", "F.cross_entropy", "torch.nn.functional.cross_entropy", net=NET),
    same("a message in a step", OWN, "        for group in self", "        print('step')\n        for group in self", net=NET),
    same("an optimizer's docstring", OWN, "    decay = 0.5", "    '''Mine.'''\n    decay = 0.5", net=NET),
]  # fmt: skip
