"""Helpers of kernels whose rows go through shared memory (`rows_across.py`), in Triton and assembly.

The host's interpreter knows the assembly by the words after `//` (`runtime/fake_cuda/shared_words.py`).
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.templates.shared_words import words_helper

RESERVED: Final = tuple(1024 * n for n in (2, 4, 8, 12, 16, 24, 32, 40))
"""Bytes of shared memory that a program can ask for: assembly says how many, and each is a helper of its own. Of the 48
KiB that a program has without the driver being asked, reductions over several warps need some, too."""


def _put(bits: int, register: str) -> str:
    return f'''
@triton.jit
def g_put_{bits}(place, value, wanted):
    """Write elements of {bits} bits to shared memory."""
    tl.inline_asm_elementwise("""{{ // shared put b{bits}
        .reg .pred %wanted;
        setp.ne.b32 %wanted, $3, 0;
        @%wanted st.shared.b{bits} [$1], $2;
        mov.b32 $0, 0;
        }}""", "=r,r,{register},r", [place, value.to(tl.int{bits}, bitcast=True), wanted.to(tl.int32)],
        dtype=tl.int32, is_pure=False, pack=1)
'''


def _get(bits: int, register: str) -> str:
    return f'''
@triton.jit
def g_get_{bits}(place, wanted):
    """Read elements of {bits} bits from shared memory, 0 where none is wanted."""
    return tl.inline_asm_elementwise("""{{ // shared get b{bits}
        .reg .pred %wanted;
        setp.ne.b32 %wanted, $2, 0;
        mov.b{bits} $0, 0;
        @%wanted ld.shared.b{bits} $0, [$1];
        }}""", "=&{register},r,r", [place, wanted.to(tl.int32)], dtype=tl.int{bits}, is_pure=False, pack=1)
'''


SHARED_ROWS: Final[dict[str, str]] = {
    **{f"g_words_{nbytes}": words_helper(nbytes, name=f"g_words_{nbytes}") for nbytes in RESERVED},
    **{f"g_last_words_{nbytes}": words_helper(nbytes, True, f"g_last_words_{nbytes}") for nbytes in RESERVED},
    "g_put_16": _put(16, "h"), "g_put_32": _put(32, "r"), "g_get_16": _get(16, "h"), "g_get_32": _get(32, "r"),
    "g_put_64": _put(64, "l"), "g_get_64": _get(64, "l"),
    "g_put_vectors": '''
@triton.jit
def g_put_vectors(place, a, b, c, d, wanted):
    """Write four words side by side to shared memory, at multiples of 16 bytes."""
    tl.inline_asm_elementwise("""{ // shared put v4
        .reg .pred %wanted;
        setp.ne.b32 %wanted, $6, 0;
        @%wanted st.shared.v4.b32 [$1], {$2, $3, $4, $5};
        mov.b32 $0, 0;
        }""", "=r,r,r,r,r,r,r", [place, a, b, c, d, wanted.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1)
''',
    "g_get_vectors": '''
@triton.jit
def g_get_vectors(place):
    """Read four words side by side from shared memory, at multiples of 16 bytes."""
    return tl.inline_asm_elementwise("""{ // shared get v4
        ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];
        }""", "=r,=r,=r,=r,r", [place], dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=False, pack=1)
''',
    "g_rows_to_shared": '''
@triton.jit
def g_rows_to_shared(place, pointer, count, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Copy COUNT elements from memory to shared memory, in vectors; of fewer, all there are, one by one."""
    BYTES: tl.constexpr = pointer.dtype.element_ty.primitive_bitwidth // 8
    if count >= COUNT:
        word = tl.arange(0, BLOCK * BYTES // 4)
        words = tl.load(pointer.to(tl.pointer_type(tl.int32)) + word, mask=word < COUNT * BYTES // 4, other=0)
        even, odd = tl.split(tl.reshape(words, [BLOCK * BYTES // 16, 2, 2]))
        a, c = tl.split(even)
        b, d = tl.split(odd)
        vector = tl.arange(0, BLOCK * BYTES // 16)
        g_put_vectors(place + vector * 16, a, b, c, d, vector < COUNT * BYTES // 16)
    else:
        near = tl.arange(0, BLOCK)
        elements = tl.load(pointer + near, mask=near < count, other=0)
        g_put_elements(place + near * BYTES, elements, near < COUNT)
''',
    "g_row_to_shared": '''
@triton.jit
def g_row_to_shared(place, pointer, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Copy COUNT elements, fewer than a warp moves at once, from memory to shared memory."""
    BYTES: tl.constexpr = pointer.dtype.element_ty.primitive_bitwidth // 8
    near = tl.arange(0, BLOCK)
    g_put_elements(place + near * BYTES, tl.load(pointer + near, mask=near < COUNT, other=0), near < COUNT)
''',
    "g_rows_from_shared": '''
@triton.jit
def g_rows_from_shared(place, pointer, count, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Copy COUNT elements from shared memory to memory, in vectors; fewer, where there is no room for more, one by
    one."""
    BYTES: tl.constexpr = pointer.dtype.element_ty.primitive_bitwidth // 8
    if count >= COUNT:
        vector = tl.minimum(tl.arange(0, BLOCK * BYTES // 16), COUNT * BYTES // 16 - 1)
        a, b, c, d = g_get_vectors(place + vector * 16)
        words = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [BLOCK * BYTES // 4])
        word = tl.arange(0, BLOCK * BYTES // 4)
        tl.store(pointer.to(tl.pointer_type(tl.int32)) + word, words, mask=word < COUNT * BYTES // 4)
    else:
        near = tl.arange(0, BLOCK)
        tl.store(pointer + near, g_get_elements(place + near * BYTES, near < count, pointer), mask=near < count)
''',
    "g_put_elements": '''
@triton.jit
def g_put_elements(place, value, wanted):
    """Write elements to shared memory."""
    if value.dtype.primitive_bitwidth == 16:
        g_put_16(place, value, wanted)
    elif value.dtype.primitive_bitwidth == 64:
        g_put_64(place, value, wanted)
    else:
        g_put_32(place, value, wanted)
''',
    "g_get_elements": '''
@triton.jit
def g_get_elements(place, wanted, pointer):
    """Read elements from shared memory, of the type that a pointer's memory has."""
    if pointer.dtype.element_ty.primitive_bitwidth == 16:
        return g_get_16(place, wanted).to(pointer.dtype.element_ty, bitcast=True)
    elif pointer.dtype.element_ty.primitive_bitwidth == 64:
        return g_get_64(place, wanted).to(pointer.dtype.element_ty, bitcast=True)
    else:
        return g_get_32(place, wanted).to(pointer.dtype.element_ty, bitcast=True)
''',
}
"""Helpers by name."""
