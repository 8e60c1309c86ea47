"""Changes around a program: what its code reads, an edit, and whether that edit must be detected."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

Act = Callable[[Path], object]


class ObservedCase(NamedTuple):
    """``read`` is the body of the user's function, in a folder that ``prepare`` has filled."""

    name: str
    read: str
    prepare: Act
    edit: Act
    changes: bool = True
    mechanism: str = "observed"


def write(files: dict[str, str]) -> Act:
    """Return a function that writes files by name."""

    def act(folder: Path) -> None:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    return act


def variable(name: str, value: str | None) -> Act:
    def act(_: Path) -> None:
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value

    return act


def both(*acts: Act) -> Act:
    return lambda folder: [act(folder) for act in acts]


def same_size_and_time(folder: Path) -> None:
    path = folder / "rates.json"
    before = path.stat()
    path.write_text("[2.0]")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def rewritten(folder: Path) -> None:
    """Write the same content again, as a checkout does: other times, another inode."""
    path = folder / "rates.json"
    text = path.read_text()
    path.unlink()
    path.write_text(text)


def array(values: list[float]) -> Act:
    def act(folder: Path) -> None:
        import numpy as np

        np.save(folder / "weights.npy", np.array(values))

    return act


def tensors(values: list[float]) -> Act:
    def act(folder: Path) -> None:
        import numpy as np
        from safetensors.numpy import save_file

        save_file({"w": np.array(values)}, folder / "weights.safetensors")

    return act


RATES = write({"rates.json": "[1.0]"})
LOAD = "import json\nreturn json.load(open('rates.json'))"
HELPER = write({"lazy_helper.py": "def size():\n    return 3\n"})
IMPORT = "import lazy_helper\nreturn lazy_helper.size()"
OTHER_HELPER = write({"lazy_helper.py": "def size():\n    return 4\n"})

CASES = [
    ObservedCase("json file", LOAD, RATES, write({"rates.json": "[2.5]"})),
    ObservedCase("json file, same size and time", LOAD, RATES, same_size_and_time),
    ObservedCase("json file removed", LOAD, RATES, lambda folder: (folder / "rates.json").unlink()),
    ObservedCase("json file written again", LOAD, RATES, rewritten, changes=False),
    ObservedCase(
        "file by Path.read_text",
        "from pathlib import Path\nreturn Path('rates.json').read_text()",
        RATES,
        write({"rates.json": "[2.5]"}),
    ),
    ObservedCase(
        "file by os.open",
        "import os\nreturn os.read(os.open('rates.json', os.O_RDONLY), 99)",
        RATES,
        write({"rates.json": "[2.5]"}),
    ),
    ObservedCase(
        "file through an absolute link",
        "import os\nreturn open(os.path.abspath('link.json')).read()",
        both(RATES, lambda folder: (folder / "link.json").symlink_to(folder / "rates.json")),
        write({"rates.json": "[2.5]"}),
    ),
    ObservedCase(
        "optional file that appears",
        "try:\n    return open('extra.json').read()\nexcept FileNotFoundError:\n    return ''",
        RATES,
        write({"extra.json": "{}"}),
    ),
    ObservedCase(
        "file that nobody reads", LOAD, both(RATES, write({"notes.txt": "a"})), write({"notes.txt": "b"}), False
    ),
    ObservedCase(
        "csv by csv.reader",
        "import csv\nreturn list(csv.reader(open('table.csv')))",
        write({"table.csv": "1,2\n"}),
        write({"table.csv": "1,3\n"}),
    ),
    ObservedCase("numpy.load", "import numpy\nreturn numpy.load('weights.npy')", array([1.0]), array([2.0])),
    ObservedCase(
        "numpy.load of a memory map",
        "import numpy\nreturn numpy.load('weights.npy', mmap_mode='r')",
        array([1.0]),
        array([2.0]),
    ),
    ObservedCase(
        "numpy.fromfile", "import numpy\nreturn numpy.fromfile('weights.npy')", array([1.0]), array([2.0])
    ),
    ObservedCase(
        "safetensors by ht.file",
        "import hoptree as ht\nfrom safetensors.numpy import load_file\n"
        "return load_file(ht.file('weights.safetensors'))",
        tensors([1.0]),
        tensors([2.0]),
    ),
    ObservedCase(
        "folder by ht.file",
        "import hoptree as ht\nreturn str(ht.file('parts'))",
        write({"parts/one.txt": "1"}),
        write({"parts/two.txt": "2"}),
    ),
    ObservedCase("lazily imported module", IMPORT, HELPER, OTHER_HELPER),
    ObservedCase(
        "comment in a lazily imported module",
        IMPORT,
        HELPER,
        write({"lazy_helper.py": '"""About."""\n\n\ndef size():  # how many\n    return 3\n'}),
        changes=False,
    ),
    ObservedCase(
        "module by importlib",
        "import importlib\nreturn importlib.import_module('lazy_' + 'helper').size()",
        HELPER,
        OTHER_HELPER,
    ),
    ObservedCase(
        "module that a lazily imported module imports",
        "import lazy_outer\nreturn lazy_outer.size()",
        both(HELPER, write({"lazy_outer.py": "from lazy_helper import size\n"})),
        OTHER_HELPER,
    ),
    ObservedCase(
        "submodule of a package",
        "import lazy_package.inner\nreturn lazy_package.inner.SIZE",
        write({"lazy_package/__init__.py": "", "lazy_package/inner.py": "SIZE = 1\n"}),
        write({"lazy_package/inner.py": "SIZE = 2\n"}),
    ),
    ObservedCase(
        "module from a folder that the function adds to sys.path",
        "import sys\nsys.path.insert(0, 'plugins')\ntry:\n    import lazy_plugin\nfinally:\n    sys.path.pop(0)\n"
        "return lazy_plugin.SIZE",
        write({"plugins/lazy_plugin.py": "SIZE = 1\n"}),
        write({"plugins/lazy_plugin.py": "SIZE = 2\n"}),
    ),
    ObservedCase(
        "module loaded by its path",
        "from importlib.util import module_from_spec, spec_from_file_location\n"
        "spec = spec_from_file_location('loaded', 'loaded.py')\nmodule = module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\nreturn module.SIZE",
        write({"loaded.py": "SIZE = 1\n"}),
        write({"loaded.py": "SIZE = 2\n"}),
    ),
    ObservedCase(
        "program run by runpy",
        "import runpy\nreturn runpy.run_path('loaded.py')['SIZE']",
        write({"loaded.py": "SIZE = 1\n"}),
        write({"loaded.py": "SIZE = 2\n"}),
    ),
    ObservedCase(
        "source that is executed",
        "space = {}\nexec(open('loaded.py').read(), space)\nreturn space['SIZE']",
        write({"loaded.py": "SIZE = 1\n"}),
        write({"loaded.py": "SIZE = 2\n"}),
    ),
    ObservedCase(
        "optional module that appears",
        "try:\n    import lazy_fast\n    return 1\nexcept ImportError:\n    return 2",
        RATES,
        write({"lazy_fast.py": ""}),
    ),
    ObservedCase(
        "data of a package by pkgutil",
        "import pkgutil\nreturn pkgutil.get_data('lazy_package', 'sizes.txt')",
        write({"lazy_package/__init__.py": "", "lazy_package/sizes.txt": "1"}),
        write({"lazy_package/sizes.txt": "2"}),
    ),
    ObservedCase(
        "data of a package by importlib.resources",
        "from importlib import resources\nreturn (resources.files('lazy_package') / 'sizes.txt').read_text()",
        write({"lazy_package/__init__.py": "", "lazy_package/sizes.txt": "1"}),
        write({"lazy_package/sizes.txt": "2"}),
    ),
    ObservedCase(
        "os.listdir", "import os\nreturn os.listdir('parts')", write({"parts/a": "1"}), write({"parts/b": "1"})
    ),
    ObservedCase(
        "glob", "import glob\nreturn glob.glob('parts/*')", write({"parts/a": "1"}), write({"parts/b": "1"})
    ),
    ObservedCase(
        "Path.iterdir",
        "from pathlib import Path\nreturn list(Path('parts').iterdir())",
        write({"parts/a": "1"}),
        write({"parts/b": "1"}),
    ),
    ObservedCase(
        "os.walk into a folder",
        "import os\nreturn list(os.walk('.'))",
        write({"parts/a": "1"}),
        write({"parts/b": "1"}),
    ),
    ObservedCase(
        "content of a file that is only listed",
        "import os\nreturn os.listdir('parts')",
        write({"parts/a": "1"}),
        write({"parts/a": "2"}),
        changes=False,
    ),
    ObservedCase(
        "hidden file in a listed folder",
        "import os\nreturn os.listdir('parts')",
        write({"parts/a": "1"}),
        write({"parts/.swap": "1"}),
        changes=False,
    ),
    ObservedCase(
        "environment variable",
        "import os\nreturn os.environ['OBSERVED_MODE']",
        variable("OBSERVED_MODE", "a"),
        variable("OBSERVED_MODE", "b"),
    ),
    ObservedCase(
        "environment variable that appears",
        "import os\nreturn os.getenv('OBSERVED_MODE', 'a')",
        variable("OBSERVED_MODE", None),
        variable("OBSERVED_MODE", "a"),
    ),
    ObservedCase(
        "environment variable asked for by in",
        "import os\nreturn 'OBSERVED_MODE' in os.environ",
        variable("OBSERVED_MODE", "a"),
        variable("OBSERVED_MODE", None),
    ),
    ObservedCase(
        "copy of the environment",
        "import os\nreturn len({**os.environ}) + len(dict(os.environ)) + len(os.environ.copy())",
        variable("OBSERVED_MODE", "a"),
        variable("OBSERVED_MODE", "b"),
        changes=False,
    ),
    ObservedCase(
        "environment variable that the function sets itself",
        "import os\nos.environ['OBSERVED_MODE'] = 'a'\nreturn os.environ['OBSERVED_MODE']",
        variable("OBSERVED_MODE", None),
        variable("OBSERVED_MODE", "b"),
        changes=False,
    ),
    ObservedCase(
        "file that the function writes first",
        "open('out.txt', 'w').write('1')\nreturn open('out.txt').read()",
        RATES,
        write({"out.txt": "2"}),
        changes=False,
    ),
    ObservedCase(
        "file in a temporary folder of its own",
        "import tempfile, os\nwith tempfile.TemporaryDirectory() as place:\n"
        "    open(os.path.join(place, 'a'), 'w').close()\n    return os.listdir(place)",
        RATES,
        write({"rates.json": "[2.5]"}),
        changes=False,
    ),
    ObservedCase(
        "file that is moved into place",
        "import os\nopen('part.txt', 'w').write('1')\nos.rename('part.txt', 'out.txt')\n"
        "return open('out.txt').read()",
        RATES,
        write({"out.txt": "2"}),
        changes=False,
    ),
    ObservedCase(
        "database that is opened for reading only",
        "import sqlite3\nreturn sqlite3.connect('file:rows.db?mode=ro', uri=True).execute('select 1').fetchall()",
        write({"rows.db": ""}),
        write({"rows.db": "x"}),
    ),
    ObservedCase(
        "file that another thread reads",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(1) as threads:\n"
        "    return list(threads.map(open, ['rates.json']))[0].close()",
        RATES,
        write({"rates.json": "[2.5]"}),
    ),
    ObservedCase(
        "source that a warning shows",
        "import linecache\nreturn linecache.getlines('loaded.py')",
        write({"loaded.py": "SIZE = 1\n"}),
        write({"loaded.py": "SIZE = 2\n"}),
        changes=False,
    ),
]
