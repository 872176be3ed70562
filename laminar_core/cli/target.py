"""Finds the function that builds a pipeline, and calls it with what was given as ``--set``."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.pipeline import Pipeline

DEFAULT_FUNCTION = "pipeline"


def load_pipeline(target: str, settings: Iterable[str]) -> Pipeline:
    """Build the pipeline that ``target`` names.

    ``target`` is ``path/to/file.py`` or ``package.module``, with ``:function`` behind it if the
    function is not called ``pipeline``. ``settings`` are ``name=value``, converted to the types
    that the function's parameters declare.

    Raises:
        ConfigurationError: there is no such function, or the settings do not fit it.
    """
    place, _, name = target.partition(":")
    function = getattr(_load(place), name or DEFAULT_FUNCTION, None)
    if not callable(function):
        raise _invalid(f"{place} has no function {name or DEFAULT_FUNCTION}()")
    built = function(**_arguments(target, function, settings))
    if not isinstance(built, Pipeline):
        raise _invalid(f"{target} returned a {type(built).__name__} and not a Pipeline")
    return built


def _load(place: str) -> object:
    sys.path.insert(0, str(Path.cwd()))  # So that a program finds what lies beside it.
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise _invalid(
                f"no module {error.name}: give a file, or a module on the path"
            ) from error
    path = Path(place)
    if not path.is_file():
        raise ConfigurationError(ErrorCode.NO_SUCH_PATH, f"no such file: {place}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, "a .py file always has a loader"
    assert spec.loader is not None, "a .py file always has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _arguments(
    target: str, function: Callable[..., object], settings: Iterable[str]
) -> dict[str, object]:
    parameters = inspect.signature(function).parameters
    arguments: dict[str, object] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise _invalid(f"--set needs name=value, not {setting!r}")
        if name not in parameters:
            raise _invalid(f"{target} has no setting {name!r}, it has: {', '.join(parameters)}")
        arguments[name] = _convert(name, value, parameters[name])
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and name not in arguments
    ]
    if missing:
        raise _invalid(f"{target} needs --set {' --set '.join(f'{n}=…' for n in missing)}")
    return arguments


def _convert(name: str, value: str, parameter: inspect.Parameter) -> object:
    if parameter.annotation is inspect.Parameter.empty:
        return value
    try:
        return TypeAdapter(parameter.annotation).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise _invalid(f"--set {name}={value}: {problem}") from error


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
