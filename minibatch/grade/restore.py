"""Put back what student code may have changed in the modules that a check is made of.

A check is trusted only if nothing it uses was exchanged: `builtins.sum = ...`, `math.isclose = ...`, a method of the
engine, a case taken out of a check's list. So before any student code runs, the modules are noted down: their names,
their classes, the code of their functions; before and after each check, everything is compared and put back.
"""

import builtins
import copy
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType

OURS = "minibatch"
CHECKS = "minibatch.checks"
ALSO = ("builtins", "math", "copy", "json", "re", "random", "statistics")  # besides what checks and the engine import
CONTAINERS = (list, dict, set)
KEPT = ("__dict__", "__weakref__", "__doc__", "__annotations__", "__annotations_cache__", "__abstractmethods__")


def first_things() -> Callable[[], list[str]]:
    """The function returned puts back the built-in functions and the interpreter's switches; it names what was changed.

    All else calls built-in functions, this file too, so here none is looked up.
    """
    originals, here = dict(vars(builtins)), vars(builtins)
    settrace, setprofile, set_limit, limit = (
        sys.settrace,
        sys.setprofile,
        sys.setrecursionlimit,
        sys.getrecursionlimit(),
    )

    def put_back() -> list[str]:
        settrace(None)
        setprofile(None)
        set_limit(limit)
        changed = []
        for name in [*here]:
            if name not in originals:
                changed += [f"builtins.{name}"]
                del here[name]
        for name in originals:
            if name not in here or here[name] is not originals[name]:
                changed += [f"builtins.{name}"]
                here[name] = originals[name]
        return changed

    return put_back


def remember(extra: set[str]) -> Callable[[], list[str]]:
    """Note down the modules as they are. The function returned puts them back, and names what had been changed in a
    way that could make a wrong answer pass. `extra` are modules with checks outside of this package."""
    modules, loaded, first = _modules(extra), sys.modules, first_things()
    steps = [step for name, module in modules.items() for step in _steps(name, module, extra)]

    def put_back() -> list[str]:
        changed = first()
        for name, module in modules.items():
            if loaded.get(name) is not module:
                changed.append(f"sys.modules[{name!r}]")
                loaded[name] = module
        for step in steps:
            changed += step()
        return changed

    return put_back


def _modules(extra: set[str]) -> dict[str, ModuleType]:
    """This package, the modules of `extra`, and each module that one of them takes something from."""
    own = {name for name in sys.modules if name in extra or name == OURS or name.startswith(f"{OURS}.")}
    names = {*own, *ALSO}
    for name in own:
        for value in list(vars(sys.modules[name]).values()):
            names.add(value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None))
    return {name: sys.modules[name] for name in names if isinstance(name, str) and name in sys.modules}


def _steps(name: str, module: ModuleType, extra: set[str]) -> list[Callable[[], list[str]]]:
    if name == "builtins":
        return []
    space, saved = vars(module), dict(vars(module))
    steps = [lambda: _put_back_names(name, space, saved)]
    own = name == OURS or name.startswith(f"{OURS}.") or name in extra
    for value in saved.values():
        if getattr(value, "__module__", None) != name:
            continue
        if isinstance(value, FunctionType):
            steps.append(_function(f"{name}.{value.__name__}", value))
        elif isinstance(value, type):
            steps += _class(f"{name}.{value.__name__}", value)
    if name.startswith(CHECKS) or name in extra:
        steps.append(_fresh_cases(space, saved))
    elif own or name == "copy":
        steps += [_container(value) for value in saved.values() if type(value) in CONTAINERS]
    return steps


def _put_back_names(name: str, space: dict, saved: dict) -> list[str]:
    """A name that is new may hide a built-in function; other new ones are left: lazy imports make them."""
    changed = []
    for key, value in saved.items():
        if space.get(key) is not value:
            if _matters(value) or key not in space or name.startswith(CHECKS):
                changed.append(f"{name}.{key}")
            space[key] = value
    for key in [key for key in space if key not in saved and hasattr(builtins, key)]:
        changed.append(f"{name}.{key}")
        del space[key]
    return changed


def _matters(value: object) -> bool:
    """A counter or a cache of a module may change; a function, a class or a module may not."""
    return isinstance(value, (FunctionType, BuiltinFunctionType, type, ModuleType))


def _function(name: str, function: FunctionType) -> Callable[[], list[str]]:
    code, defaults, keywords = function.__code__, function.__defaults__, function.__kwdefaults__

    def put_back() -> list[str]:
        same = function.__code__ is code and function.__defaults__ is defaults and function.__kwdefaults__ is keywords
        if same:
            return []
        function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, keywords
        return [name]

    return put_back


def _class(name: str, cls: type) -> list[Callable[[], list[str]]]:
    saved = {key: value for key, value in vars(cls).items() if key not in KEPT}

    def put_back() -> list[str]:
        changed = []
        now = vars(cls)
        for key, value in saved.items():
            if now.get(key) is not value:
                type.__setattr__(cls, key, value)
                if callable(value) or isinstance(value, (property, staticmethod, classmethod)):
                    changed.append(f"{name}.{key}")
        for key in [key for key in now if key not in saved and key not in KEPT and callable(now[key])]:
            type.__delattr__(cls, key)
            changed.append(f"{name}.{key}")
        return changed

    inside = [getattr(value, "__func__", getattr(value, "fget", value)) for value in saved.values()]
    functions = [each for each in inside if isinstance(each, FunctionType)]
    return [put_back, *(_function(f"{name}.{each.__name__}", each) for each in functions)]


def _container(value: list | dict | set) -> Callable[[], list[str]]:
    """The same object with the elements it had; its growth is no sign of a trick."""
    saved = copy.copy(value)

    def put_back() -> list[str]:
        if len(value) == len(saved) and list(map(id, value)) == list(map(id, saved)):
            if type(value) is not dict or list(map(id, value.values())) == list(map(id, saved.values())):
                return []
        value.clear()
        value.extend(saved) if type(value) is list else value.update(saved)
        return []

    return put_back


def _fresh_cases(space: dict, saved: dict) -> Callable[[], list[str]]:
    """The lists of cases of a check, at any depth as they were. `saved` is what this module is compared with."""
    names = [key for key, value in saved.items() if type(value) in (list, dict, tuple) and key[:2] != "__"]
    cases = {key: copy.deepcopy(saved[key]) for key in names}

    def put_back() -> list[str]:
        for key, value in cases.items():
            space[key] = saved[key] = copy.deepcopy(value)
        return []

    return put_back
