"""Words, which sorting compares: the key of a value above its position.

16 bits above 16 in an int32 for dtypes of 8 and 16 bits, 32 above 32 in an int64. Words differ, so that a network,
which is not stable, gives the stable order; and the values come back out of the keys. Only whether a zero was -0.0 is
lost with the key; the lowest bit keeps it.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.lowerings import triton_type
from genesis.ir.node import Node
from genesis.ir.types import DType, bfloat16, bool_, float16, float32, uint8

KEYS: Final[dict[DType, tuple[str, str]]] = {
    float32: ("g_key32({0})", "g_float32({0})"),
    bfloat16: ("g_key32({0}) >> 16", "g_bfloat16({0})"),
    float16: ("g_key_half({0})", "g_half({0})"),
}
"""Floating dtype → its key in an int32, and the value of a key. Integers are their own keys."""


class Words:
    """How elements of a dtype become words and come back."""

    def __init__(self, dtype: DType, descending: bool, bits64: bool = False):
        self.dtype, self.descending = dtype, descending
        self.bits32 = dtype.itemsize <= 2 and not bits64
        self.type = "tl.int32" if self.bits32 else "tl.int64"
        self.shift = 16 if self.bits32 else 32
        self.largest = 2**31 - 1 if self.bits32 else 2**63 - 1

    @property
    def turn(self) -> int:
        """The sign of words' keys: turned over, its digits are in the elements' order as unsigned numbers."""
        if self.dtype in (uint8, bool_):
            return 0
        sign = self.shift + 8 * self.dtype.itemsize - 1
        return -1 << sign if sign in (31, 63) else 1 << sign

    def pack(self, value: str, position: str) -> list[str]:
        """Lines for `word`, from a value in its dtype or the float32 that holds it."""
        floating = self.dtype in KEYS
        key = KEYS[self.dtype][0].format("value") if floating else "value.to(tl.int32)"
        low = f"({position} * 2 + g_minus_zero(value))" if floating else f"({position} * 2)"
        return [f"value = {value}", f"key = {'~' if self.descending else ''}({key})",
                f"word = (key.to({self.type}) << {self.shift}) | {low}.to({self.type})"]

    def unpack(self) -> list[str]:
        """Lines for `index` and `value`, held as the dtype is."""
        lines = [f"low = word & {(1 << self.shift) - 1}", "index = low >> 1",
                 f"key = {'~' if self.descending else ''}(word >> {self.shift}).to(tl.int32)"]
        if self.dtype in KEYS:
            value = KEYS[self.dtype][1].format("key")
            return [*lines, f"bits = ({value}).to(tl.int32, bitcast=True) | (low.to(tl.int32) << 31)",
                    "value = bits.to(tl.float32, bitcast=True)"]
        return [*lines, "value = key != 0" if self.dtype is bool_ else f"value = key.to({triton_type(self.dtype)})"]

    def stores(self, outputs: dict[str, Node], at: str) -> list[str]:
        """Lines that write what is wanted of `value` and `index`, where `inside` holds."""
        value = "value" if self.dtype is bool_ else f"value.to({triton_type(self.dtype)})"
        texts = {"values": value, "indices": "index.to(tl.int64)"}
        return [f"tl.store({name} + {at}, {texts[name]}, mask=inside)" for name in outputs]
