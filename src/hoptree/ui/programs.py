"""Users' programs: a file is loaded as python loads a script, and the study in it is found."""

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

MODULE = "__program__"  # not __main__: what stands under that name is not to run
_TRAINED_WITH = ("trainer", "data", "seed")  # what bits depend on; the rest only says which trials there are


class ProgramError(HoptreeError):
    """A program that cannot be loaded, or that does not define the study that was asked for."""


@contextmanager
def program(target: str, wanted: str = "") -> Iterator[Study]:
    """Load ``FILE[:NAME]`` and give its study; ``wanted`` is the study's name, where the target gives none.

    While the context lasts, the file is what python would have made of it: its folder is first on the path, and
    ``sys.argv`` and ``__main__`` name it, where a study looks for the program that it is of. Its functions are
    sent to workers by value, as those of a script are.
    """
    file, name = _parse(target)
    with _as_script(file):
        yield _find(_load(file), file, name or wanted)


def recorded_program(spec: StudySpec, name: str) -> str:
    """Return the file that a study was run with, if it is still there."""
    if not spec.program:
        raise ProgramError(f"{name}: it was run in a notebook or at a prompt; give its code as --program FILE")
    if not Path(spec.program).is_file():
        raise ProgramError(f"{name}: its program {spec.program} is gone; give its code as --program FILE")
    return spec.program


def refuse_other_study(study: Study, name: str, stored: StudySpec) -> None:
    """Refuse a program that would not train what is stored, and say what differs."""
    if study.name != name:
        raise ProgramError(f"--program: its study is {study.name!r}; expected {name!r}")
    now = study.spec
    differ = [
        f"{field} (stored {str(before)[:12]}, the program's {str(after)[:12]})"
        for field in _TRAINED_WITH
        if (before := getattr(stored, field)) != (after := getattr(now, field))
    ]
    if differ:
        raise StudyChangedError(
            f"study {name!r}: the program has another {', another '.join(differ)}; expected the code that the "
            "study was run with; give it as --program FILE"
        )


def lines_to_load(file: str, study: str) -> list[str]:
    """Return the lines of Python that load a study's best model, for a study defined in ``file``.

    The file is read, not run. It need not be there any more, so the variable may have to be guessed.
    """
    load = "model = study.results().best.load()"
    if not file:
        return [load]  # where the study was defined: in a notebook, or at a prompt
    path = Path(file)
    variable = _variable(path, study) or "study"
    load = load.replace("study", variable, 1)
    if path.suffix == ".py" and path.stem.isidentifier():
        return [f"from {path.stem} import {variable}  # in {path.parent}", load]
    return [f"import runpy; {variable} = runpy.run_path({file!r})[{variable!r}]", load]


# --- loading ----------------------------------------------------------------------------------------------


class _Script(SourceFileLoader):
    """Compiles a file anew, as python does with a script: no stale cache is read, and none is left behind."""

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
            f"{file}: it ended itself while it was loaded (exit code {error.code}); expected a file that can be "
            "imported: put what is to run only as a program below if __name__ == '__main__':"
        ) from None
    except Exception as error:
        missing = f"; {_to_install(error.name)}" if isinstance(error, ModuleNotFoundError) and error.name else ""
        raise ProgramError(f"{file}: it cannot be loaded{missing}:\n{_told(error, str(file))}") from error
    return module


def _to_install(module: str) -> str:
    return f"correct the name {module!r}, or install it for the Python that runs this, {sys.executable}"


def _told(error: Exception, file: str) -> str:
    """Return an exception as python would print it for a script: from the file on, without who called it."""
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
            f"{file}: no study was found; expected a variable at its top level that is an ht.Study: functions are "
            "not called, and what stands below if __name__ == '__main__': is not run"
        )
    if name in studies:
        return studies[name]
    found = {id(study): study for study in studies.values() if name in ("", study.name)}
    if len(found) == 1:
        return found.popitem()[1]
    listed = ", ".join(f"{variable} (named {study.name!r})" for variable, study in studies.items())
    asked = f"no study {name!r}" if not found else f"several studies named {name!r}" if name else "several studies"
    raise ProgramError(f"{file}: {asked}; it has {listed}; say which as FILE:VARIABLE")


def _variable(file: Path, study: str) -> str | None:
    """Return the variable to which a program assigns a study, as far as that can be read off."""
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
