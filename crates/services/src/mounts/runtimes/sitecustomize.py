"""Lets aiohttp, which ignores proxy variables unless told otherwise, read them.

Python loads this file when it starts. Promise: a `sitecustomize` that would have been loaded without it is loaded too;
an error in here never keeps a program from starting.
"""

import importlib.abc
import importlib.util
import os
import sys


class _ClientFinder(importlib.abc.MetaPathFinder):
    """Changes the default of `aiohttp.ClientSession(trust_env=...)` when the library is loaded."""

    def find_spec(self, name, path=None, target=None):
        if name != "aiohttp.client":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_change(module):
                load(module)
                session = getattr(module, "ClientSession", None)
                begin = session.__init__ if session is not None else None

                def begin_with_proxy(self, *args, **options):
                    options.setdefault("trust_env", True)
                    begin(self, *args, **options)

                if session is not None:
                    session.__init__ = begin_with_proxy

            spec.loader.exec_module = load_and_change
        return spec


def _load_the_other():
    here = os.path.dirname(os.path.abspath(__file__))
    own, before = sys.modules.pop("sitecustomize", None), list(sys.path)
    try:
        sys.path[:] = [place for place in before if os.path.abspath(place or ".") != here]
        importlib.import_module("sitecustomize")
    except ImportError:
        if own is not None:
            sys.modules["sitecustomize"] = own
    finally:
        sys.path[:] = before


try:
    sys.meta_path.insert(0, _ClientFinder())
    _load_the_other()
except Exception:  # The program matters more than this file.
    pass
