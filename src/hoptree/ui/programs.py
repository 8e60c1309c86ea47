"""User programs: load a file as Python loads a script, and find the study in it."""

from __future__ import annotations

import ast
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

from hoptree.core.errors import HoptreeError, StudyChangedError

if TYPE_CHECKING:
    from hoptree.record.spec import StudySpec
from hoptree.study.study import Study

MODULE = "__program__"  # not __main__: the code below if __name__ == "__main__" must not run
_TRAINED_WITH = (
    "trainer",
    "data",
    "seed",
)  # what bits depend on; the other fields only determine which trials exist


class ProgramError(HoptreeError):
    """A program cannot be loaded, or does not define the requested study."""


@contextmanager
def program(target: str, wanted: str = "") -> Iterator[Study]:
    """Load ``FILE[:NAME]`` and yield its study; ``wanted`` is the study's name if the target gives none.

    Within the context the interpreter looks as if it had started the file as a script: its folder is first on
    ``sys.path``, and ``sys.argv`` and ``__main__`` name it, where a study looks for its program. Its functions are
    pickled by value for workers, as those of a script are.
    """
    file, name = _parse(target)
    with _as_script(file):
        yield _find(_load(file), file, name or wanted)


def recorded_program(spec: StudySpec, name: str) -> str:
    """Return the file that a study was run with; raise an error if it does not exist."""
    if not spec.program:
        raise ProgramError(f"{name}: it was run in a notebook or at a prompt; give its code as --program FILE")
    if not Path(spec.program).is_file():
        raise ProgramError(f"{name}: its program {spec.program} does not exist; give its code as --program FILE")
    return spec.program


def check_same_study(study: Study, name: str, stored: StudySpec) -> None:
    """Raise an error that names what differs, if a program would not train what is stored."""
    if study.name != name:
        raise ProgramError(f"--program: it defines the study {study.name!r}; expected {name!r}")
    now = study.spec
    differ = [
        f"{field} (stored {str(before)[:12]}, the program's {str(after)[:12]})"
        for field in _TRAINED_WITH
        if (before := getattr(stored, field)) != (after := getattr(now, field))
    ]
    if differ:
        raise StudyChangedError(
            f"study {name!r}: the program differs in {', '.join(differ)}; give the code that the "
            "study was run with as --program FILE"
        )


def lines_to_load(file: str, study: str) -> list[str]:
    """Return the lines of Python that load a study's best model, for a study defined in ``file``.

    The file is parsed, not run. If it no longer exists, the variable is guessed.
    """
    load = "model = study.results().best.load()"
    if not file:
        return [load]  # defined in a notebook or at a prompt
    path = Path(file)
    variable = _variable(path, study) or "study"
    load = load.replace("study", variable, 1)
    if path.suffix == ".py" and path.stem.isidentifier():
        return [f"from {path.stem} import {variable}  # in {path.parent}", load]
    return [f"import runpy; {variable} = runpy.run_path({file!r})[{variable!r}]", load]


# --- loading ----------------------------------------------------------------------------------------------


class _Script(SourceFileLoader):
    """Compiles a file on every load, as Python does with a script: bytecode caches are neither read nor written."""

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def _parse(target: str) -> tuple[Path, str]:
    file, _, name = target.rpartition(":")
    if not file or Path(target).is_file():
        file, name = target, ""
    path = Path(file).absolute()
    if not path.is_file():
        raise ProgramError(f"{file}: no such file; expected a Python program, as FILE or FILE:NAME")
    return path, name


@contextmanager
def _as_script(file: Path) -> Iterator[None]:
    main = vars(sys.modules["__main__"])
    before = list(sys.path), list(sys.argv), main.get("__file__")
    sys.path.insert(0, str(file.resolve().parent))
    sys.argv[:] = [str(file)]
    main["__file__"] = str(file)
    try:
        yield
    finally:
        sys.path[:], sys.argv[:], main["__file__"] = before
        if before[2] is None:
            del main["__file__"]


def _load(file: Path) -> ModuleType:
    import cloudpickle

    loader = _Script(MODULE, str(file))
    spec = spec_from_loader(MODULE, loader)
    assert spec is not None
    module = sys.modules[MODULE] = module_from_spec(spec)
    cloudpickle.register_pickle_by_value(module)
    try:
        loader.exec_module(module)
    except SystemExit as error:
        raise ProgramError(
            f"{file}: it called sys.exit while it was loaded (exit code {error.code}); expected a file that can be "
            "imported: put code that should run only as a script below if __name__ == '__main__':"
        ) from None
    except Exception as error:
        missing = f"; {_to_install(error.name)}" if isinstance(error, ModuleNotFoundError) and error.name else ""
        raise ProgramError(f"{file}: cannot be loaded{missing}:\n{_traceback(error, str(file))}") from error
    return module


def _to_install(module: str) -> str:
    return f"correct the name {module!r}, or install it for this Python, {sys.executable}"


def _traceback(error: Exception, file: str) -> str:
    """Return a traceback that starts in the file, as Python would print it for a script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


# --- finding ----------------------------------------------------------------------------------------------


def _find(module: ModuleType, file: Path, name: str) -> Study:
    from hoptree.study.study import Study

    studies = {variable: value for variable, value in vars(module).items() if isinstance(value, Study)}
    if not studies:
        raise ProgramError(
            f"{file}: no study was found; assign an ht.Study to a variable at the top level: functions are "
            "not called, and code below if __name__ == '__main__': is not run"
        )
    if name in studies:
        return studies[name]
    found = {id(study): study for study in studies.values() if name in ("", study.name)}
    if len(found) == 1:
        return found.popitem()[1]
    listed = ", ".join(f"{variable} (named {study.name!r})" for variable, study in studies.items())
    asked = f"no study {name!r}" if not found else f"several studies named {name!r}" if name else "several studies"
    raise ProgramError(f"{file}: {asked}; it defines {listed}; select one as FILE:VARIABLE")


def _variable(file: Path, study: str) -> str | None:
    """Return the variable to which a program assigns a study, None if its source does not show it."""
    try:
        statements = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return None
    for statement in statements:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Call(called, [ast.Constant(value), *_])) if value == study:
                if ast.unparse(called).rpartition(".")[2] == "Study":
                    return name
    return None
