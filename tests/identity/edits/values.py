"""Values that code reads: constants, containers, arrays, tensors, patterns, objects of libraries, captured ones."""

from __future__ import annotations

from tests.identity.edits.case import Edit, edit, same

SCALED = """
def net(hp):
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.mul_(factor())
    return model
"""


def value(name: str, made: str, used: str, old: str, new: str, *, changes: bool = True) -> Edit:
    """Return an edit of a module's VALUE, which ``used`` turns into a number."""
    text = f"import re, collections, functools, operator, random, pathlib, fractions, decimal, datetime\nimport numpy as np\n{made}\n"
    return edit(name, f"{text}def factor():\n    return {used}\n", old, new, changes=changes, net=SCALED)


EDITS = [
    value("a float", "VALUE = 0.5", "VALUE", "0.5", "0.75"),
    value("an int that becomes a float", "VALUE = 1", "float(isinstance(VALUE, float)) + 0.5", "VALUE = 1", "VALUE = 1.0"),
    value("minus zero", "import math\nVALUE = 0.0", "math.copysign(1.0, VALUE)", "VALUE = 0.0", "VALUE = -0.0"),
    value("True instead of 1", "VALUE = 1", "0.5 if VALUE is True else 0.25", "VALUE = 1", "VALUE = True"),
    value("a text", "VALUE = 'abc'", "len(VALUE) / 4", "'abc'", "'abcd'"),
    value("bytes", "VALUE = b'ab'", "VALUE[0] / 50", "b'ab'", "b'bb'"),
    value("a list", "VALUE = [1, 2]", "VALUE[1] / 4", "[1, 2]", "[1, 3]"),
    value("the order of a list", "VALUE = [1, 2]", "VALUE[1] / 4", "[1, 2]", "[2, 1]"),
    value("a tuple instead of a list", "VALUE = [1]", "0.5 + isinstance(VALUE, tuple)", "[1]", "(1,)"),
    value("a nested value", "VALUE = {'a': [{'b': (1, 2.5)}]}", "VALUE['a'][0]['b'][1] / 4", "2.5", "3.5"),
    value("a key", "VALUE = {'a': 1, 'b': 2}", "VALUE.get('b', 3) / 4", "'b': 2", "'c': 2"),
    value("the order of a dictionary", "VALUE = {'a': 1, 'b': 2}", "list(VALUE.values())[0] / 4", "{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}"),
    value("a set", "VALUE = {1, 2}", "sum(VALUE) / 4", "{1, 2}", "{1, 5}"),
    value("a slice", "VALUE = slice(0, 2)", "sum([1, 2, 3][VALUE]) / 8", "slice(0, 2)", "slice(0, 3)"),
    value("a range", "VALUE = range(3)", "sum(VALUE) / 4", "range(3)", "range(4)"),
    value("a pattern", "VALUE = re.compile('a+')", "len(VALUE.match('aab').group()) / 4", "'a+'", "'a+b'"),
    value("a pattern's flags", "VALUE = re.compile('A+')", "0.5 if VALUE.match('aab') else 0.25", "'A+')", "'A+', re.I)"),
    value("an array", "VALUE = np.array([1.0, 2.0])", "float(VALUE[1]) / 4", "2.0]", "3.0]"),
    value("an array's type", "VALUE = np.array([1, 2])", "VALUE.dtype.itemsize / 8", "[1, 2])", "[1, 2], dtype=np.int16)"),
    value("an array's shape", "VALUE = np.arange(6)", "len(VALUE) / 4", "arange(6)", "arange(6).reshape(2, 3)"),
    value("an array's mask", "VALUE = np.ma.array([1.0, 2.0], mask=[False, True])", "float(VALUE.sum()) / 4", "[False, True]", "[False, False]"),
    value("an array's fill value", "VALUE = np.ma.array([1.0, 2.0], mask=[False, True], fill_value=5.0)", "float(VALUE.filled()[1]) / 8", "5.0", "6.0"),
    value("a structured array's fields", "VALUE = np.array([(1, 2)], dtype=[('a', 'i4'), ('b', 'i4')])", "float(VALUE['a'][0]) / 2",
          "[('a', 'i4'), ('b', 'i4')]", "[('b', 'i4'), ('a', 'i4')]"),
    value("an array of objects", "VALUE = np.array([[1], {'a': 2}], dtype=object)", "VALUE[1]['a'] / 4", "'a': 2", "'a': 3"),
    value("a structured array with objects", "VALUE = np.array([(1, [2])], dtype=[('a', 'i4'), ('b', 'O')])", "VALUE['b'][0][0] / 4", "[2]", "[3]"),
    value("numpy's number", "VALUE = np.float32(0.5)", "float(VALUE)", "0.5", "0.75"),
    value("numpy's type", "VALUE = np.float32", "float(VALUE(0.1))", "np.float32", "np.float16"),
    value("a generator's seed", "VALUE = np.random.default_rng(1)", "float(VALUE.random())", "(1)", "(2)"),
    value("random's seed", "VALUE = random.Random(1)", "VALUE.random()", "(1)", "(2)"),
    value("a tensor", "VALUE = torch.tensor([0.5])", "VALUE.item()", "0.5", "0.75"),
    value("a tensor's type", "VALUE = torch.tensor([0.1])", "VALUE.element_size() / 16", "[0.1])", "[0.1], dtype=torch.float64)"),
    value("a sparse tensor", "VALUE = torch.sparse_coo_tensor([[0, 1]], [0.5, 1.0], (3,))", "VALUE.to_dense()[0].item()", "[0.5, 1.0]", "[0.75, 1.0]"),
    value("a sparse tensor's places", "VALUE = torch.sparse_coo_tensor([[0, 1]], [0.5, 1.0], (3,))", "VALUE.to_dense()[0].item() + 0.25", "[[0, 1]]", "[[2, 1]]"),
    value("rows of a sparse tensor", "VALUE = torch.tensor([[0.5, 0.0]]).to_sparse_csr()", "VALUE.to_dense()[0, 0].item() + 0.25", "[[0.5, 0.0]]", "[[0.0, 0.5]]"),
    value("a complex tensor", "VALUE = torch.tensor([0.5 + 1j])", "VALUE.imag.item() / 2", "1j", "1.5j"),
    value("a conjugated tensor", "VALUE = torch.tensor([0.5 + 1j])", "VALUE.imag.item() / 2", "[0.5 + 1j])", "[0.5 + 1j]).conj()"),
    value("a quantized tensor's scale", "VALUE = torch.quantize_per_tensor(torch.tensor([1.0]), 0.5, 0, torch.qint8)", "VALUE.dequantize().item() / 2",
          "([1.0]), 0.5", "([2.0]), 1.0"),
    value("a bfloat16 tensor", "VALUE = torch.tensor([0.5], dtype=torch.bfloat16)", "VALUE.item()", "[0.5]", "[0.75]"),
    value("a type of torch", "VALUE = torch.float32", "torch.finfo(VALUE).bits / 64", "torch.float32", "torch.float16"),
    value("a parameter", "VALUE = nn.Parameter(torch.tensor([0.5]))", "VALUE.item()", "0.5", "0.75"),
    value("a module's setting", "VALUE = nn.Dropout(0.5)", "VALUE.p", "0.5", "0.25"),
    value("a named tuple", "P = collections.namedtuple('P', 'a b')\nVALUE = P(1, 2)", "VALUE.b / 4", "(1, 2)", "(1, 3)"),
    value("an ordered dictionary", "VALUE = collections.OrderedDict(a=1)", "VALUE['a'] / 4", "a=1", "a=2"),
    value("a default dictionary's factory", "VALUE = collections.defaultdict(int)", "VALUE['x'] + 0.5", "(int)", "(lambda: 1)"),
    value("a counter", "VALUE = collections.Counter('aab')", "VALUE['a'] / 4", "'aab'", "'aaab'"),
    value("a queue", "VALUE = collections.deque([1, 2])", "VALUE[0] / 4", "[1, 2]", "[2, 2]"),
    value("a partial", "VALUE = functools.partial(max, 3)", "VALUE(2) / 4", "max, 3", "max, 4"),
    value("a partial's keyword", "def f(a, b=1):\n    return a + b\nVALUE = functools.partial(f, b=2)", "VALUE(1) / 4", "b=2", "b=3"),
    value("an item getter", "VALUE = operator.itemgetter(0)", "VALUE([0.5, 0.75])", "(0)", "(1)"),
    value("an attribute getter", "VALUE = operator.attrgetter('real')", "VALUE(0.5 + 1j)", "'real'", "'imag'"),
    value("a method caller", "VALUE = operator.methodcaller('count', 'a')", "VALUE('aab') / 4", "'count', 'a'", "'count', 'b'"),
    value("a fraction", "VALUE = fractions.Fraction(1, 2)", "float(VALUE)", "(1, 2)", "(1, 3)"),
    value("a decimal", "VALUE = decimal.Decimal('0.5')", "float(VALUE)", "'0.5'", "'0.75'"),
    value("a date", "VALUE = datetime.date(2020, 1, 2)", "VALUE.day / 4", "1, 2)", "1, 3)"),
    value("a path", "VALUE = pathlib.PurePosixPath('a/b')", "len(str(VALUE)) / 4", "'a/b'", "'a/bc'"),
    value("a type", "VALUE = int", "VALUE(1.5) / 2", "VALUE = int", "VALUE = float"),
    value("a builtin", "VALUE = min", "VALUE(1, 2) / 2", "VALUE = min", "VALUE = max"),
    value("a function in a container", "VALUE = [lambda v: v / 2]", "VALUE[0](1)", "v / 2", "v / 3"),
    value("a captured value", "def maker(v):\n    def inner():\n        return v / 2\n    return inner\nVALUE = maker(1)", "VALUE()", "maker(1)", "maker(2)"),
    value("a captured value that changes", "def maker():\n    v = 1\n    def more():\n        nonlocal v\n        v += 1\n    def inner():\n        return v / 4\n    return more, inner\nMORE, VALUE = maker()",
          "VALUE()", "= maker()", "= maker()\nMORE()"),
    value("a default that is a list", "def f(a=[1]):\n    return sum(a) / 4\nVALUE = f", "VALUE()", "a=[1]", "a=[1, 2]"),
    value("a default list that is changed", "def f(a=[1]):\n    return sum(a) / 4\nVALUE = f", "VALUE()", "VALUE = f\n", "VALUE = f\nf.__defaults__[0].append(2)\n"),
    value("a function's attribute", "def f():\n    return f.scale\nf.scale = 0.5\nVALUE = f", "VALUE()", "f.scale = 0.5", "f.scale = 0.75"),
    value("a variable assigned later", "VALUE = 0.5", "VALUE", "VALUE = 0.5", "VALUE = 0.5\nVALUE = VALUE * 1.5"),
    value("a prefilled memo", "MEMO = {0: 0.5}", "MEMO.setdefault(0, 1.0)", "{0: 0.5}", "{0: 0.75}"),
    value("an object that holds itself", "VALUE = [0.5]\nVALUE.append(VALUE)", "VALUE[1][1][0]", "[0.5]", "[0.75]"),
    value("an alias of a type", "VALUE = list[int]", "0.5 if VALUE.__args__ == (int,) else 0.25", "list[int]", "list[str]"),
    value("an empty memo that was filled", "MEMO = {}\ndef f(n):\n    if n not in MEMO:\n        MEMO[n] = n / 4\n    return MEMO[n]", "f(2)",
          "    return MEMO[n]", "    return MEMO[n]\nf(1)\nf(2)", changes=False),
    value("a lru_cache that was filled", "@functools.lru_cache\ndef f(n):\n    return n / 4", "f(2)", "return n / 4", "return n / 4\nf(1)", changes=False),
    value("a lru_cache's function", "@functools.lru_cache\ndef f(n):\n    return n / 4", "f(2)", "n / 4", "n / 5"),
    value("a memo of a function that was filled", "def f(n, cache={}):\n    if n not in cache:\n        cache[n] = n / 4\n    return cache[n]", "f(2)",
          "    return cache[n]", "    return cache[n]\nf(1)", changes=False),
    value("a memo as an attribute that was filled", "def f(n):\n    if n not in f.cache:\n        f.cache[n] = n / 4\n    return f.cache[n]\nf.cache = {}", "f(2)",
          "f.cache = {}", "f.cache = {}\nf(1)", changes=False),
    value("an object's cache that was filled", "class Memo:\n    def __init__(self):\n        self._cache = {}\n    def get(self, n):\n        if n not in self._cache:\n            self._cache[n] = n / 4\n        return self._cache[n]\nVALUE = Memo()",
          "VALUE.get(2)", "VALUE = Memo()", "VALUE = Memo()\nVALUE.get(1)", changes=False),
    value("a number written otherwise", "VALUE = 0.5", "VALUE", "VALUE = 0.5", "VALUE = 1 / 2", changes=False),
    value("a value under another name", "VALUE = [1, 2]", "VALUE[1] / 4", "VALUE", "_value", changes=False),
    value("a set written in another order", "VALUE = {'x', 'y', 'z'}", "len(VALUE) / 4", "{'x', 'y', 'z'}", "{'z', 'y', 'x'}", changes=False),
    same("a library's generator that was used", "import random\nx = 1\n", "x = 1", "x = random.random()",
         net="def net(hp):\n    random.seed(3)\n    return nn.Linear(4, 2 + 0 * random.randint(0, 1))\n"),
]  # fmt: skip
