"""`load_url`, the name of old for `genesis.hub.load_state_dict_from_url`."""

from genesis.ir.suggest import suggesting
from genesis.utils.downloads import load_state_dict_from_url as load_url

__all__ = ["load_url"]

__getattr__ = suggesting(__name__)
