"""`genesis.version`: what was built, with torch's names.

In: nothing. Out: names and numbers.

Attributes:
    __version__: Genesis' version.
    cuda, hip, xpu: None: nothing is built for one version of them; the GPU's driver is asked when it is used.
    debug: False.
"""

from importlib import import_module

from genesis.ir.suggest import suggesting

__version__: str = import_module("genesis").__version__
cuda: str | None = None
hip: str | None = None
xpu: str | None = None
git_version: str | None = None
debug = False

__getattr__ = suggesting(__name__)
