"""Words that a program keeps in shared memory, at places that are computed: Triton's language has no form for that.

A kernel asks for its memory once (`g_words`) and gets where it begins. `g_put`, `g_get` and `g_plus` are by the
element, whoever holds it. `g_added` and `g_ranked` look at the 32 elements that the lanes of a warp hold: they meet
where their labels are equal, and take turns in the order of the lanes. So the block that they are given has an element
for every thread, in one dimension or in rows of one program with one warp: then a thread's number is its element's.

The lanes with equal labels are found by a ballot for each bit of a label: for a few bits that takes fewer cycles than
`match.any`. The host's interpreter knows these lines by the words after `//` (`runtime/fake_cuda/shared_words.py`).
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.lowerings import held
from genesis.ir.types import DType, int32

MOST_BYTES: Final = 48 << 10
"""Bytes that a kernel can ask for in this way: what a program has of shared memory without the driver being asked."""


def peers(bits: int) -> str:
    """Assembly that leaves in %peers the lanes whose label in $1 agrees in its lowest bits with this lane's."""
    lines = ["mov.b32 %peers, -1;"]
    for bit in range(bits):
        lines += [f"and.b32 %bit, $1, {1 << bit};",
                  "setp.ne.b32 %set, %bit, 0;",
                  "vote.sync.ballot.b32 %alike, %set, -1;",
                  "@!%set not.b32 %alike, %alike;",
                  "and.b32 %peers, %peers, %alike;"]
    return "\n        ".join(lines)


def sum_kind(dtype: DType) -> tuple[DType, str, int]:
    """(the dtype that values of a dtype are added in, its name in PTX, its bytes)."""
    found = held(dtype)
    if found.itemsize == 8:
        return found, "f64" if found.kind == "float" else "s64", 8
    return (found, "f32", 4) if found.kind == "float" else (int32, "s32", 4)


def words_helper(nbytes: int) -> str:
    """`g_words()`: where these bytes of shared memory begin."""
    return f'''
@triton.jit
def g_words():
    """Where {nbytes} bytes of this program's shared memory begin."""
    return tl.inline_asm_elementwise("""{{ // shared words
        .shared .align 16 .b8 words[{nbytes}];
        mov.u32 $0, words;
        }}""", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
'''


_REGISTERS: Final = {"f32": "f", "f64": "d", "s32": "r", "s64": "l"}
"""PTX type → the letter of its registers in a constraint."""

_TRITON: Final = {"f32": "tl.float32", "f64": "tl.float64", "s32": "tl.int32", "s64": "tl.int64"}


def _writer(signature: str, says: str, form: str, lines: str, constraints: str, operands: str) -> str:
    """A function of assembly that changes shared words; what it returns means nothing, but Triton wants a result."""
    return f'''
@triton.jit
def {signature}:
    """{says}"""
    tl.inline_asm_elementwise("""{{ // shared {form}{lines}
        mov.b32 $0, 0;
        }}""", "=r,{constraints}", [{operands}], dtype=tl.int32, is_pure=False, pack=1)
'''


def _add(kind: str, where: str, place: str, value: str) -> str:
    """Assembly that adds to one word, by way of %sum, where a predicate holds."""
    add = f"add.rn.{kind}" if kind[0] == "f" else f"add.{kind}"
    return f"""@{where} ld.shared.{kind} %sum, [{place}];
        @{where} {add} %sum, %sum, {value};
        @{where} st.shared.{kind} [{place}], %sum;"""


def put_helper(kind: str) -> str:
    """`g_put_{kind}(place, value, wanted)`: write shared words of this PTX type."""
    says = "Write values to shared memory; a warp goes on together."
    return _writer(f"g_put_{kind}(place, value, wanted)", says, f"put {kind}", f"""
        .reg .pred %wanted;
        setp.ne.b32 %wanted, $3, 0;
        @%wanted st.shared.{kind} [$1], $2;
        bar.warp.sync -1;""", f"r,{_REGISTERS[kind]},r", "place, value, wanted.to(tl.int32)")


def get_helper(kind: str) -> str:
    """`g_get_{kind}(place)`: read shared words of this PTX type."""
    return f'''
@triton.jit
def g_get_{kind}(place):
    """Read values from shared memory, which whoever wrote them has made seen."""
    return tl.inline_asm_elementwise("""{{ // shared get {kind}
        ld.shared.{kind} $0, [$1];
        }}""", "={_REGISTERS[kind]},r", [place], dtype={_TRITON[kind]}, is_pure=False, pack=1)
'''


def plus_helper(kind: str) -> str:
    """`g_plus_{kind}(place, value, wanted)`: add to shared words, each of which one thread alone has an element for."""
    says = "Add values to shared memory: to words that no other thread has."
    return _writer(f"g_plus_{kind}(place, value, wanted)", says, f"plus {kind}", f"""
        .reg .pred %wanted;
        .reg .{kind} %sum;
        setp.ne.b32 %wanted, $3, 0;
        {_add(kind, "%wanted", "$1", "$2")}""", f"r,{_REGISTERS[kind]},r", "place, value, wanted.to(tl.int32)")


def added_helper(kind: str, bits: int) -> str:
    """`g_added_{kind}(label, words, value)`: add to shared words, those of one label in the order of the lanes.

    A label has at most `bits` bits; a negative one takes no part.
    """
    size = {"f32": 4, "s32": 4, "f64": 8}[kind]
    says = "Add values to the shared words of their labels, equal ones in the order of a warp's lanes."
    return _writer(f"g_added_{kind}(label, words, value)", says, f"added {kind}", f"""
        .reg .pred %set, %here, %now, %more;
        .reg .b32 %peers, %bit, %alike, %rank, %round, %place;
        .reg .{kind} %sum;
        setp.ge.s32 %here, $1, 0;
        {peers(bits)}
        vote.sync.ballot.b32 %alike, %here, -1;
        and.b32 %peers, %peers, %alike;
        mov.u32 %bit, %lanemask_lt;
        and.b32 %peers, %peers, %bit;
        popc.b32 %rank, %peers;
        selp.b32 %rank, %rank, -1, %here;
        mad.lo.s32 %place, $1, {size}, $2;
        mov.b32 %round, 0;
    AGAIN:
        setp.eq.s32 %now, %rank, %round;
        {_add(kind, "%now", "%place", "$3")}
        bar.warp.sync -1;
        setp.gt.s32 %more, %rank, %round;
        vote.sync.any.pred %more, %more, -1;
        add.s32 %round, %round, 1;
        @%more bra AGAIN;""", f"r,r,{_REGISTERS[kind]}", "label, words, value")


def ranked_helper(bits: int) -> str:
    """`g_ranked(label, counters, lane)`: a number for each element from the counter of its label, which goes on.

    All lanes take part.
    """
    return f'''
@triton.jit
def g_ranked(label, counters):
    """How far the counter of each label has come, equal labels one after another in the order of a warp's lanes."""
    return tl.inline_asm_elementwise("""{{ // shared ranked
        .reg .pred %set, %first;
        .reg .b32 %peers, %bit, %alike, %rank, %many, %place, %count;
        {peers(bits)}
        mov.u32 %bit, %lanemask_lt;
        and.b32 %bit, %peers, %bit;
        popc.b32 %rank, %bit;
        popc.b32 %many, %peers;
        mad.lo.s32 %place, $1, 4, $2;
        bar.warp.sync -1;
        ld.shared.s32 %count, [%place];
        add.s32 $0, %count, %rank;
        bar.warp.sync -1;
        setp.eq.s32 %first, %rank, 0;
        add.s32 %count, %count, %many;
        @%first st.shared.s32 [%place], %count;
        bar.warp.sync -1;
        }}""", "=&r,r,r", [label, counters], dtype=tl.int32, is_pure=False, pack=1)
'''
