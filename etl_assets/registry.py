"""Pipelines: found in ``etl_assets.pipelines``, and in the modules, files and folders that ``ETL_PIPELINES`` names."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from etl_assets.contract import Pipeline
from etl_assets.contract.naming import check_together
from etl_assets.errors import ContractError, EtlError, UnknownPipeline

BUILT_IN = "etl_assets.pipelines"
VARIABLE = "ETL_PIPELINES"


@dataclass(frozen=True, slots=True)
class _Source:
    """A module that may declare pipelines: one that can be imported by its name, or (``apart``) a file of its own."""

    name: str
    file: Path | None = None
    apart: bool = False

    @property
    def stem(self) -> str:
        return self.name.rsplit(".", 1)[-1]

    def load(self) -> ModuleType:
        try:
            if self.file is None or not self.apart:
                return importlib.import_module(self.name)
            if self.name in sys.modules:
                return sys.modules[self.name]
            spec = importlib.util.spec_from_file_location(self.name, self.file)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[self.name] = module
            spec.loader.exec_module(module)
            return module
        except EtlError as error:
            sys.modules.pop(self.name, None)
            raise ContractError(f"{self.file or self.name}: {error}") from error
        except Exception as error:  # a user's module may fail in any way
            sys.modules.pop(self.name, None)
            raise ContractError(
                f"the pipeline module {self.file or self.name} cannot be loaded: {type(error).__name__}: {error}"
            ) from error


def load_pipelines() -> dict[str, Pipeline]:
    """All pipelines by name. Raises :class:`ContractError` or :class:`UnknownPipeline`, naming the module."""
    found: dict[str, tuple[Pipeline, str]] = {}
    for source in _sources():
        for pipeline in _declared(source.load()):
            known = found.get(pipeline.name)
            place = str(source.file or source.name)
            if known and known[0] is not pipeline:
                raise ContractError(
                    f"two pipelines are named {pipeline.name!r}: in {known[1]} and in {place}. Rename one; if one of them "
                    "imports the other, let it do so by the folder's name (from my_pipelines.sales import sales)"
                )
            found[pipeline.name] = (pipeline, place)
    try:
        check_together(pipeline for pipeline, _ in found.values())
    except ValueError as error:
        raise ContractError(str(error)) from error
    return {name: pipeline for name, (pipeline, _) in sorted(found.items())}


def find_pipeline(name: str) -> Pipeline:
    """One pipeline. Where a single module has its name only that one is loaded, which keeps the command line quick."""
    named = [s for s in _sources() if s.stem == name]
    if len(named) == 1:
        for pipeline in _declared(named[0].load()):
            if pipeline.name == name:
                return pipeline
    pipelines = load_pipelines()
    if name not in pipelines:
        raise UnknownPipeline(
            f"no pipeline is named {name!r}; there are {', '.join(pipelines) or 'none'}. Pipelines are found in {BUILT_IN} "
            f"and in what {VARIABLE} names"
        )
    return pipelines[name]


def _declared(module: ModuleType) -> Iterator[Pipeline]:
    return (value for value in vars(module).values() if isinstance(value, Pipeline))


def _sources() -> list[_Source]:
    places = [p.strip() for p in os.environ.get(VARIABLE, "").split(os.pathsep) if p.strip()]
    return [*_modules(BUILT_IN), *(source for place in places for source in _place(place))]


def _place(place: str) -> list[_Source]:
    path = Path(place)
    if path.is_dir():
        return [_file(f) for f in sorted(path.glob("*.py")) if not f.name.startswith("_")]
    if path.is_file():
        return [_file(path)]
    if os.sep in place or place.endswith(".py"):
        raise UnknownPipeline(f"{VARIABLE} names {place!r}, where there is neither a folder nor a file")
    return _modules(place)


def _file(path: Path) -> _Source:
    """A file as the module that its folder makes it (``my_pipelines.sales``), so that modules of a folder import each other.

    Where that name is another file's, in a folder of the same name, it is a module of its own.
    """
    whole = path.resolve()
    name = f"{whole.parent.name}.{path.stem}"
    if all(part.isidentifier() for part in name.split(".")):
        above = str(whole.parent.parent)
        if above not in sys.path:
            sys.path.append(above)
        try:
            spec = importlib.util.find_spec(name)
        except Exception:  # a package of that name, whose __init__ may do anything
            spec = None
        if spec and spec.origin and Path(spec.origin).resolve() == whole:
            return _Source(name, path)
    folder = hashlib.sha256(str(path.resolve().parent).encode()).hexdigest()[:8]
    return _Source(f"etl_pipelines_{folder}.{path.stem}", path, apart=True)


def _modules(name: str) -> list[_Source]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    except Exception as error:  # finding a module runs the package that it is in
        raise ContractError(f"the pipeline module {name} cannot be loaded: {type(error).__name__}: {error}") from error
    if spec is None:
        raise UnknownPipeline(
            f"{VARIABLE} names {name!r}, which is neither a folder, a file nor a module that can be imported"
        )
    inner = pkgutil.iter_modules(spec.submodule_search_locations or [])
    return [_Source(name), *(_Source(f"{name}.{module.name}") for module in inner if not module.name.startswith("_"))]
