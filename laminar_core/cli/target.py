"""Find the function that builds a pipeline, and call it with the values of ``--set``."""

# cloudpickle has no types for its arguments.
# pyright: reportUnknownMemberType=false

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pyspark import cloudpickle

from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError
from laminar_core.pipeline import Pipeline
from laminar_core.worker.imports import PROGRAM_PREFIX

DEFAULT_FUNCTION = "pipeline"

_FROM_ENVIRONMENT = "env:"

_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def load_pipeline(target: str, settings: Iterable[str]) -> Pipeline:
    """Build the pipeline that ``target`` names.

    ``target`` is ``path/to/file.py`` or ``package.module``, with ``:function`` behind it if the
    function is not called ``pipeline``. ``settings`` are ``name=value``, converted to the types
    that the function's parameters declare.

    Raises:
        ConfigurationError: there is no such function, it fails, or the settings do not fit it.
    """
    place, _, name = target.partition(":")
    with _explained(f"{place} cannot be loaded"):
        module = _load(place)
    name = name or DEFAULT_FUNCTION
    function = getattr(module, name, None)
    if not callable(function):
        raise _invalid(f"{place} has no function {name}()")
    with _explained(f"{name}() of {place} failed"):
        built = function(**_arguments(target, function, settings))
    if not isinstance(built, Pipeline):
        raise _invalid(f"{target} returned a {type(built).__name__} and not a Pipeline")
    return built


def _load(place: str) -> ModuleType:
    _make_importable(Path.cwd())
    if place.endswith(".py"):
        return _load_file(Path(place))
    if not place:
        raise _invalid("give a file, or a module on the path")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if not f"{place}.".startswith(f"{error.name}."):
            raise  # The module is there, and something that it imports is not.
        if Path(place).is_file():
            raise _invalid(f"{place} is no program: give a file .py") from error
        raise _invalid(f"no module {error.name}: give a file, or a module on the path") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigurationError(ErrorCode.NO_SUCH_PATH, f"no such file: {path}")
    _make_importable(path.resolve().parent)
    name = f"{PROGRAM_PREFIX}{path.stem}"  # Not the stem alone: a program may be called json.py.
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a .py file always has a loader"
    assert spec.loader is not None, "a .py file always has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    # Workers cannot import it by this name: what it defines travels whole.
    cloudpickle.register_pickle_by_value(module)
    return module


_importable: dict[Path, None] = {}


def folders_of_programs() -> list[Path]:
    """Return the folders from which programs of this process may import."""
    return list(_importable)


def _make_importable(directory: Path) -> None:
    """Let a program import what lies there, in this process and in Spark's workers."""
    _importable[directory] = None
    first = str(directory)
    if first not in sys.path:
        sys.path.insert(0, first)
    known = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if first not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([first, *known])


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn an exception of the user's program into an error that names it as the cause."""
    try:
        yield
    except LaminarError:
        raise
    except Exception as error:
        said = str(error).partition("\n")[0]
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE,
            f"{what}: {type(error).__name__}: {said} (`laminar --debug …` shows where)",
        ) from error


def _arguments(
    target: str, function: Callable[..., object], settings: Iterable[str]
) -> dict[str, object]:
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items()
        if parameter.kind not in _ANY_NUMBER
    }
    arguments = dict(_argument(target, parameters, setting) for setting in settings)
    missing = [
        f"--set {name}=…"
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and name not in arguments
    ]
    if missing:
        raise _invalid(f"{target} needs {' '.join(missing)}")
    return arguments


def _argument(
    target: str, parameters: Mapping[str, inspect.Parameter], setting: str
) -> tuple[str, object]:
    name, equals, value = setting.partition("=")
    if not equals:
        raise _invalid(f"--set needs name=value, not {setting!r}")
    if name not in parameters:
        known = f"it has: {', '.join(parameters)}" if parameters else "it has none"
        raise _invalid(f"{target} has no setting {name!r}, {known}")
    return name, _convert(name, value, parameters[name])


def _from_environment(name: str, value: str) -> str:
    """Read a secret from a variable, because a list of processes shows the command line."""
    if not value.startswith(_FROM_ENVIRONMENT):
        return value
    variable = value.removeprefix(_FROM_ENVIRONMENT)
    if variable not in os.environ:
        raise _invalid(f"--set {name}={value}: the environment variable {variable} is not set")
    return os.environ[variable]


def _convert(name: str, shown: str, parameter: inspect.Parameter) -> object:
    value = _from_environment(name, shown)
    if parameter.annotation is inspect.Parameter.empty:
        return value
    try:
        return TypeAdapter(parameter.annotation).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise _invalid(f"--set {name}={shown}: {problem}") from error
    except PydanticUserError as error:
        raise _invalid(f"{name} cannot be set on the command line: it takes a Python object") from (
            error
        )


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
