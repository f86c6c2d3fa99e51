"""Words that a program keeps in shared memory, at places that are computed: Triton's language has no form for that.

A kernel asks for its memory once (`g_words`) and gets where it begins. `g_put`, `g_get` and `g_plus` are by the
element, whoever holds it, and `g_listed` by the warp, however many elements it holds. `g_added` and `g_ranked` look at
the 32 elements that the lanes of a warp hold: they meet where their labels are equal, and take turns in the order of
the lanes. So the blocks that they are given have an element for every thread, in one dimension or in rows of one
program with one warp: then a thread's number is its element's.

`g_ranked` finds the lanes with equal labels by a ballot for each bit of a label. `g_added`, whose labels have more,
has each lane leave its bit at the label's mark: an `or`, which gives the same in any order (Adinets and Merrill, 2022).
The host's interpreter knows these lines by the words after `//` (`runtime/fake_cuda/shared_words.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.lowerings import held
from genesis.ir.types import DType, int32

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_BYTES: Final = 48 << 10
"""Bytes that a kernel can ask for in this way: what a program has of shared memory without the driver being asked."""


def peers(bits: int) -> str:
    """Assembly that leaves in %peers the lanes whose label in $1 agrees in its lowest bits with this lane's.

    Two bits' lanes are taken together with those before: an instruction has three operands.
    """
    lines = ["mov.b32 %peers, -1;"]
    for bit in range(bits):
        alike = f"%alike{bit % 2}"
        lines += [f"and.b32 %bit, $1, {1 << bit};",
                  "setp.ne.b32 %set, %bit, 0;",
                  f"vote.sync.ballot.b32 {alike}, %set, -1;",
                  f"@!%set not.b32 {alike}, {alike};"]
        if bit % 2:
            lines.append("lop3.b32 %peers, %peers, %alike0, %alike1, 0x80;")
        elif bit == bits - 1:
            lines.append("and.b32 %peers, %peers, %alike0;")
    return "\n        ".join(lines)


def sum_kind(dtype: DType) -> tuple[DType, str, int]:
    """(the dtype that values of a dtype are added in, its name in PTX, its bytes)."""
    found = held(dtype)
    if found.itemsize == 8:
        return found, "f64" if found.kind == "float" else "s64", 8
    return (found, "f32", 4) if found.kind == "float" else (int32, "s32", 4)


def words_helper(nbytes: int, beside: bool = False, name: str = "g_words") -> str:
    """`g_words()`: where these bytes of shared memory begin.

    Args:
        beside: they lie behind what Triton asks for, and are `KernelSource.shared`: more than `MOST_BYTES` is to be
            had there, and functions that ask for them have the same. A multiple of 16.
        name: the function's.
    """
    if beside:
        return f'''
@triton.jit
def {name}():
    """Where {nbytes} bytes of this program's shared memory begin: the last ones that it was launched with."""
    return tl.inline_asm_elementwise("""{{ // shared words
        // words[{nbytes}]
        .reg .b32 %whole;
        mov.u32 %whole, %dynamic_smem_size;
        mov.u32 $0, global_smem;
        add.s32 $0, $0, %whole;
        sub.s32 $0, $0, {nbytes};
        }}""", "=&r", [], dtype=tl.int32, is_pure=False, pack=1)
'''
    return f'''
@triton.jit
def {name}():
    """Where {nbytes} bytes of this program's shared memory begin."""
    return tl.inline_asm_elementwise("""{{ // shared words
        .shared .align 16 .b8 words[{nbytes}];
        mov.u32 $0, words;
        }}""", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
'''


REGISTER_LETTERS: Final = {"f32": "f", "f64": "d", "s32": "r", "s64": "l", "u16": "r"}
"""PTX type → the letter of its registers in a constraint; those of 16 bits are 32 in registers."""

_TRITON: Final = {"f32": "tl.float32", "f64": "tl.float64", "s32": "tl.int32", "s64": "tl.int64", "u16": "tl.int32"}


def _writer(signature: str, says: str, form: str, lines: str, constraints: str, operands: str, pack: int = 1) -> str:
    """A function of assembly that changes shared words, of `pack` elements at a time; what it returns means nothing,
    but Triton wants a result."""
    zeros = "".join(f"\n        mov.b32 ${k}, 0;" for k in range(pack))
    results = ",".join(["=r"] * pack)
    return f'''
@triton.jit
def {signature}:
    """{says}"""
    tl.inline_asm_elementwise("""{{ // shared {form}{lines}{zeros}
        }}""", "{results},{constraints}", [{operands}], dtype=tl.int32, is_pure=False, pack={pack})
'''


def assembly(lines: Iterable[str]) -> str:
    """Instructions, a line each."""
    return "".join(f"\n        {line}" for line in lines)


def plus_instruction(kind: str) -> str:
    """The instruction that adds values of a PTX type."""
    return f"add.rn.{kind}" if kind[0] == "f" else f"add.{kind}"


def put_helper(kind: str) -> str:
    """`g_put_{kind}(place, value, wanted)`: write shared words of this PTX type."""
    says = "Write values to shared memory; a warp goes on together."
    return _writer(f"g_put_{kind}(place, value, wanted)", says, f"put {kind}", f"""
        .reg .pred %wanted;
        setp.ne.b32 %wanted, $3, 0;
        @%wanted st.shared.{kind} [$1], $2;
        bar.warp.sync -1;""", f"r,{REGISTER_LETTERS[kind]},r", "place, value, wanted.to(tl.int32)")


def get_helper(kind: str) -> str:
    """`g_get_{kind}(place)`: read shared words of this PTX type."""
    return f'''
@triton.jit
def g_get_{kind}(place):
    """Read values from shared memory, which whoever wrote them has made seen."""
    return tl.inline_asm_elementwise("""{{ // shared get {kind}
        ld.shared.{kind} $0, [$1];
        }}""", "={REGISTER_LETTERS[kind]},r", [place], dtype={_TRITON[kind]}, is_pure=False, pack=1)
'''


def got_helper(kind: str) -> str:
    """`g_got_{kind}(place, wanted)`: read shared words of this PTX type where it is wanted, and 0 elsewhere."""
    zero = {"f32": "0f00000000", "f64": "0d0000000000000000"}.get(kind, "0")
    return f'''
@triton.jit
def g_got_{kind}(place, wanted):
    """Read values from shared memory, which whoever wrote them has made seen, or 0."""
    return tl.inline_asm_elementwise("""{{ // shared get {kind}
        .reg .pred %wanted;
        setp.ne.b32 %wanted, $2, 0;
        mov.{kind} $0, {zero};
        @%wanted ld.shared.{kind} $0, [$1];
        }}""", "=&{REGISTER_LETTERS[kind]},r,r", [place, wanted.to(tl.int32)], dtype={_TRITON[kind]}, is_pure=False,
        pack=1)
'''


def emptied_helper(nbytes: int, threads: int) -> str:
    """`g_emptied(words, thread)`: so many bytes of shared memory from a place on are 0, 16 at a time by each of the
    program's threads. A multiple of 16."""
    step = 16 * threads
    whole, left = divmod(nbytes, step)
    store = "st.shared.v4.b32 [%at+{}], {{%zero, %zero, %zero, %zero}};".format
    lines = [".reg .pred %some;",
             ".reg .b32 %at, %zero;",
             "mad.lo.s32 %at, $2, 16, $1;",
             "mov.b32 %zero, 0;",
             *(store(k * step) for k in range(whole)),
             *([f"setp.lt.s32 %some, $2, {left // 16};", f"@%some {store(whole * step)}"] if left else [])]
    return _writer("g_emptied(words, thread)", "Make shared words 0.", f"emptied {nbytes}", assembly(lines), "r,r",
                   "words, thread")


def raised_helper() -> str:
    """`g_raised(place, value, wanted)`: shared words become the largest of what they are and of the values, which are
    above 0; tells whether an element is the one that found its word 0.

    A word that is as large already is left alone: of many that meet in one the first few wait."""
    return '''
@triton.jit
def g_raised(place, value, wanted):
    """Make shared words the largest of what they are and of the values for them; 1 for who found 0."""
    return tl.inline_asm_elementwise("""{ // shared raised u32
        .reg .pred %wanted;
        .reg .b32 %there;
        setp.ne.b32 %wanted, $3, 0;
        mov.b32 %there, 1;
        @%wanted ld.shared.u32 %there, [$1];
        setp.lt.and.u32 %wanted, %there, $2, %wanted;
        @%wanted atom.shared.max.u32 %there, [$1], $2;
        setp.eq.and.u32 %wanted, %there, 0, %wanted;
        selp.b32 %there, 1, 0, %wanted;
        mov.b32 $0, %there;
        }""", "=&r,r,r,r", [place, value, wanted.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1)
'''


def counted_helper() -> str:
    """`g_counted(place, value, wanted)`: add whole numbers to shared words, whoever else does: the same in any
    order."""
    says = "Add whole numbers to shared words, of which several threads may have one."
    return _writer("g_counted(place, value, wanted)", says, "counted s32", """
        .reg .pred %wanted;
        setp.ne.b32 %wanted, $3, 0;
        @%wanted red.shared.add.u32 [$1], $2;""", "r,r,r", "place, value, wanted.to(tl.int32)")


def plus_helper(kind: str, vector: int = 1) -> str:
    """`g_plus_{kind}(place, value, wanted)`: add to shared words, each of which one thread alone has an element for.

    `vector` of a thread's elements at a time, as many as it has or a divisor: their words are read before the first is
    written, so that they wait once.
    """
    says, each = "Add values to shared memory: to words that no other thread has.", range(vector)
    places, values, wanted = ([f"${(1 + operand) * vector + k}" for k in each] for operand in range(3))
    lines = [f".reg .pred %wanted<{vector}>;", f".reg .{kind} %sum<{vector}>;",
             *(f"setp.ne.b32 %wanted{k}, {wanted[k]}, 0;" for k in each),
             *(f"@%wanted{k} ld.shared.{kind} %sum{k}, [{places[k]}];" for k in each),
             *(f"@%wanted{k} {plus_instruction(kind)} %sum{k}, %sum{k}, {values[k]};" for k in each),
             *(f"@%wanted{k} st.shared.{kind} [{places[k]}], %sum{k};" for k in each)]
    constraints = ",".join(letter for letter in ("r", REGISTER_LETTERS[kind], "r") for _ in each)
    return _writer(f"g_plus_{kind}(place, value, wanted)", says, f"plus {kind}", assembly(lines), constraints,
                   "place, value, wanted.to(tl.int32)", vector)


def ended_helper(kind: str, vector: int, stride: int) -> str:
    """`g_ended_{kind}(row, first, slot, words, value, wanted)`: add values that are wanted to sums in shared memory,
    and give 0 instead of them; the others stay what they are.

    An element's sum is at words + stride · row, or at words + stride · slot where its row is `first`: where rows are
    shared, a group of lanes has a slot of its own for the one that began before. One thread alone has elements for it.
    `vector` of a thread's elements at a time, each wanted or not: which elements a thread has is Triton's to say, and
    only where it loads rows in vectors are they of one row. There their tests are one. All lanes take part: a warp that
    wants no element goes past, and so reckons no place. One that wants some reads the sums of all its elements: what
    only some lanes read would have a register of its own at each call, kept from one turn of a loop to the next.
    """
    each = range(vector)
    rows, firsts, slots, words, values, wanted = ([f"${(1 + operand) * vector + k}" for k in each]
                                                  for operand in range(6))
    zero = {"f32": "0f00000000", "f64": "0d0000000000000000"}.get(kind, "0")
    lines = [f".reg .pred %wanted<{vector}>, %some, %same;", f".reg .{kind} %sum<{vector}>;",
             f".reg .b32 %at<{vector}>;",
             *(f"setp.ne.b32 %wanted{k}, {wanted[k]}, 0;" for k in each),
             *(f"mov.{kind} ${k}, {values[k]};" for k in each),
             "mov.pred %some, %wanted0;",
             *(f"or.pred %some, %some, %wanted{k};" for k in each[1:]),
             "vote.sync.any.pred %some, %some, -1;",
             "@!%some bra DONE;",
             *(line for k in each for line in (f"setp.eq.s32 %same, {rows[k]}, {firsts[k]};",
                                               f"selp.b32 %at{k}, {slots[k]}, {rows[k]}, %same;",
                                               f"mad.lo.s32 %at{k}, %at{k}, {stride}, {words[k]};")),
             *(f"ld.shared.{kind} %sum{k}, [%at{k}];" for k in each),
             *(f"{plus_instruction(kind)} %sum{k}, %sum{k}, {values[k]};" for k in each),
             *(f"@%wanted{k} st.shared.{kind} [%at{k}], %sum{k};" for k in each),
             *(f"@%wanted{k} mov.{kind} ${k}, {zero};" for k in each)]
    letter = REGISTER_LETTERS[kind]
    constraints = ",".join([*[f"=&{letter}"] * vector, *["r"] * (4 * vector), *[letter] * vector, *["r"] * vector])
    return f'''
@triton.jit
def g_ended_{kind}(row, first, slot, words, value, wanted):
    """Add what is wanted to its row's sum, which no other thread has; what is left of the values."""
    return tl.inline_asm_elementwise("""{{ // shared ended {kind} {stride}{assembly(lines)}
    DONE:
        }}""", "{constraints}", [row, first, slot, words, value, wanted.to(tl.int32)], dtype={_TRITON[kind]},
        is_pure=False, pack={vector})
'''


LISTED: Final = 8
"""Maximum elements of a thread that `g_listed` takes at a time."""


def listed_helper(most: int, warps: int, at_a_time: int = LISTED) -> str:
    """`g_listed(lists, value, wanted)`: each warp appends the values that are wanted to a list of its own.

    The list of each of the `warps` is the number of its values and up to `most` of them, one list after another. Their
    order is that of a thread's elements by so many `at_a_time`, no more than it has, then of the lanes, then of the
    elements: the same each time.
    """
    says = "Append the values that are wanted to their warps' lists, each with its number first."
    each = range(at_a_time)
    lists, values, wanted = ([f"${(1 + operand) * at_a_time + k}" for k in each] for operand in range(3))
    lines = [f".reg .pred %wanted<{at_a_time}>, %none, %first;",
             ".reg .b32 %mine, %bits, %below, %list, %place, %many, %total, %end;",
             "mov.b32 %mine, 0;",
             *(line for k in each for line in (f"setp.ne.b32 %wanted{k}, {wanted[k]}, 0;",
                                               f"@%wanted{k} add.s32 %mine, %mine, 1;")),
             "setp.eq.s32 %none, %mine, 0;",
             "vote.sync.all.pred %none, %none, -1;",
             "@%none bra DONE;",
             "mov.u32 %list, %tid.x;",
             "shr.u32 %list, %list, 5;",
             f"mad.lo.s32 %list, %list, {4 * (most + 1)}, {lists[0]};",
             "ld.shared.s32 %many, [%list];",
             "mov.u32 %below, %lanemask_lt;",
             "mov.b32 %end, %many;",
             *(line for bit in range(at_a_time.bit_length()) for line in (  # numbers of lanes, added up bit by bit
                 f"and.b32 %bits, %mine, {1 << bit};",
                 "setp.ne.b32 %first, %bits, 0;",
                 "vote.sync.ballot.b32 %bits, %first, -1;",
                 "popc.b32 %total, %bits;",
                 f"mad.lo.s32 %many, %total, {1 << bit}, %many;",
                 "and.b32 %bits, %bits, %below;",
                 "popc.b32 %total, %bits;",
                 f"mad.lo.s32 %end, %total, {1 << bit}, %end;")),
             "mad.lo.s32 %place, %end, 4, %list;",
             *(line for k in each for line in (f"@%wanted{k} add.s32 %place, %place, 4;",
                                               f"@%wanted{k} st.shared.s32 [%place], {values[k]};")),
             "bar.warp.sync -1;",
             "mov.u32 %bits, %laneid;",
             "setp.eq.s32 %first, %bits, 0;",
             "@%first st.shared.s32 [%list], %many;",
             "bar.warp.sync -1;"]
    return _writer("g_listed(lists, value, wanted)", says, f"listed {most} {warps}", assembly(lines) + "\n    DONE:",
                   ",".join(["r"] * 3 * at_a_time), "lists, value, wanted.to(tl.int32)", at_a_time)


def equal_ones_summed(kind: str, label: str, value: str, taking: str, first: str, number: int) -> list[str]:
    """Assembly by which the lanes of a warp add up what they have for equal labels: the first lane of a label's has the
    sum in the register `value` then, and the predicate `first`.

    Neighbours among a label's lanes are added, and every second one goes on: five rounds at most, for all labels at
    once (Westphal, 2015), always in the same order. A lane that takes no part (`taking`) has a label of its own.

    Args:
        number: of this text among those of one function.
    """
    shuffled = ([f"mov.b64 {{%low, %high}}, {value};", "shfl.sync.idx.b32 %low, %low, %from, 31, -1;",
                 "shfl.sync.idx.b32 %high, %high, %from, 31, -1;", "mov.b64 %further, {%low, %high};"]
                if kind.endswith("64") else [f"shfl.sync.idx.b32 %further, {value}, %from, 31, -1;"])
    return [
        "mov.u32 %from, %laneid;",
        "not.b32 %from, %from;",
        f"selp.b32 %from, {label}, %from, {taking};",
        "match.any.sync.b32 %peers, %from, -1;",
        "mov.u32 %those, %lanemask_lt;",
        "and.b32 %those, %peers, %those;",
        "popc.b32 %among, %those;",
        f"setp.eq.and.b32 {first}, %those, 0, {taking};",
        "mov.u32 %those, %lanemask_gt;",
        "and.b32 %peers, %peers, %those;",
        f"PEERS{number}:",
        "setp.ne.b32 %some, %peers, 0;",
        "vote.sync.any.pred %more_of, %some, -1;",
        f"@!%more_of bra.uni SUMMED{number};",
        "brev.b32 %from, %peers;",
        "clz.b32 %from, %from;",
        "and.b32 %from, %from, 31;",
        *shuffled,
        f"@%some {plus_instruction(kind)} {value}, {value}, %further;",
        "and.b32 %from, %among, 1;",
        "setp.eq.b32 %some, %from, 0;",
        "vote.sync.ballot.b32 %from, %some, -1;",
        "and.b32 %peers, %peers, %from;",
        "shr.u32 %among, %among, 1;",
        f"bra.uni PEERS{number};",
        f"SUMMED{number}:"]


def equal_ones_registers(kind: str) -> list[str]:
    """What the text of `equal_ones_summed` declares."""
    return [".reg .pred %some, %more_of;", ".reg .b32 %peers, %among, %from, %those, %low, %high;",
            f".reg .{kind} %further;"]


MANY_TURNS: Final = 12
"""Turns that positions that meet in a sum may take one after another; where there would be more, the lanes of a warp
add up what they have for equal sums first. Up to here bits are those of one thread that goes through the positions."""


def added_helper(kind: str, count: int, slots: int) -> str:
    """`g_added_{kind}(labels, words, marks, values)`: add to words of this PTX type, of `count` elements a lane.

    Each element leaves its lane's bit in the slot of its label, in the word of its place among the lane's elements; so
    an element that reads its slot knows how many come before it. As many turns later it adds. Labels of one slot take
    turns, too, equal or not: slots are a power of two, and marks, a vector of words a slot, are 0 before and after.
    Where there would be more turns than `MANY_TURNS`, equal labels of the lanes' first elements are added up at once,
    then those of their second ones (`equal_ones_summed`).
    """
    width = {1: 1, 2: 2}.get(count, 4)
    each = range(count)
    labels, values = [f"${1 + k}" for k in each], [f"${3 + count + k}" for k in each]
    words, marks = f"${1 + count}", f"${2 + count}"
    vector = {1: "", 2: ".v2", 4: ".v4"}[width]
    masks = [", ".join(f"%mask{width * k + j}" for j in range(width)) for k in each]
    zeros = ", ".join(["%zero"] * width)
    if width > 1:
        masks, zeros = [f"{{{mask}}}" for mask in masks], f"{{{zeros}}}"
    fold = (slots - 1).bit_length()
    lines = [
        *(line for k in each for line in (
            f"setp.ge.s32 %here{k}, {labels[k]}, 0;",
            f"shr.u32 %slot{k}, {labels[k]}, {fold};",
            f"xor.b32 %slot{k}, %slot{k}, {labels[k]};",
            f"and.b32 %slot{k}, %slot{k}, {slots - 1};",
            f"mad.lo.s32 %slot{k}, %slot{k}, {4 * width}, {marks};",
            f"mad.lo.s32 %place{k}, {labels[k]}, {8 if kind.endswith('64') else 4}, {words};")),
        "mov.b32 %zero, 0;",
        "mov.u32 %below, %lanemask_lt;",
        "mov.u32 %lane, %lanemask_eq;",
        *(f"@%here{k} red.shared.or.b32 [%slot{k}{f'+{4 * k}' if k else ''}], %lane;" for k in each),
        "bar.warp.sync -1;",
        *(f"@%here{k} ld.shared{vector}.b32 {masks[k]}, [%slot{k}];" for k in each),
        "bar.warp.sync -1;",
        *(f"@%here{k} st.shared{vector}.b32 [%slot{k}], {zeros};" for k in each),
        *(line for k in each for line in (
            f"and.b32 %more, %mask{width * k + k}, %below;",
            f"popc.b32 %rank{k}, %more;",
            *(part for j in range(k) for part in (f"popc.b32 %more, %mask{width * k + j};",
                                                  f"add.s32 %rank{k}, %rank{k}, %more;")),
            f"selp.b32 %rank{k}, %rank{k}, -1, %here{k};")),
        "mov.b32 %last, %rank0;",
        *(f"max.s32 %last, %last, %rank{k};" for k in each[1:]),
        "mov.b32 %turn, 0;",
        f"setp.ge.s32 %again, %last, {MANY_TURNS};",
        "vote.sync.any.pred %again, %again, -1;",
        "@%again bra MANY;"]
    turn = [
        *(f"setp.eq.s32 %now{k}, %rank{k}, %turn;" for k in each),
        *(f"@%now{k} ld.shared.{kind} %sum{k}, [%place{k}];" for k in each),
        *(f"@%now{k} {plus_instruction(kind)} %sum{k}, %sum{k}, {values[k]};" for k in each),
        *(f"@%now{k} st.shared.{kind} [%place{k}], %sum{k};" for k in each),
        "bar.warp.sync -1;",
        "setp.gt.s32 %again, %last, %turn;",
        "vote.sync.any.pred %again, %again, -1;",
        "add.s32 %turn, %turn, 1;",
        "@%again bra AGAIN;",
        "bra.uni ADDED;"]
    many = [line for k in each for line in (
        f"mov.{kind} %sum{k}, {values[k]};",
        *equal_ones_summed(kind, labels[k], f"%sum{k}", f"%here{k}", f"%now{k}", k),
        f"@%now{k} ld.shared.{kind} %further, [%place{k}];",
        f"@%now{k} {plus_instruction(kind)} %further, %further, %sum{k};",
        f"@%now{k} st.shared.{kind} [%place{k}], %further;",
        "bar.warp.sync -1;")]
    registers = [
        f".reg .pred %here<{count}>, %now<{count}>, %again;",
        f".reg .b32 %slot<{count}>, %place<{count}>, %rank<{count}>, %mask<{width * count}>;",
        ".reg .b32 %zero, %below, %lane, %more, %last, %turn;",
        f".reg .{kind} %sum<{count}>;",
        *equal_ones_registers(kind)]
    text = (assembly((*registers, *lines)) + "\n    AGAIN:" + assembly(turn) + "\n    MANY:" + assembly(many)
            + "\n    ADDED:")
    given = ", ".join((*(f"label_{k}" for k in each), "words", "marks", *(f"value_{k}" for k in each)))
    says = "Add values to the shared words of their labels, equal ones in the order of lanes' elements, then of lanes."
    return _writer(f"g_added_{kind}({given})", says, f"added {kind} {count} {slots}", text,
                   ",".join((*("r" for _ in range(count + 2)), *(REGISTER_LETTERS[kind] for _ in each))), given)


def own_added_helper(kind: str, count: int) -> str:
    """`g_added_{kind}(labels, words, values)`: add to words of this PTX type that no other lane adds to, of `count`
    elements a lane, one after another."""
    each = range(count)
    registers = [".reg .pred %here;", ".reg .b32 %place;", f".reg .{kind} %sum;"]
    lines = [line for k in each for line in (
        f"setp.ge.s32 %here, ${1 + k}, 0;",
        f"mad.lo.s32 %place, ${1 + k}, {8 if kind.endswith('64') else 4}, ${1 + count};",
        f"@%here ld.shared.{kind} %sum, [%place];",
        f"@%here {plus_instruction(kind)} %sum, %sum, ${2 + count + k};",
        f"@%here st.shared.{kind} [%place], %sum;")]
    given = ", ".join((*(f"label_{k}" for k in each), "words", *(f"value_{k}" for k in each)))
    return _writer(f"g_added_{kind}({given})", "Add values to shared words that are the lane's own.",
                   f"own {kind} {count}", assembly((*registers, *lines, "bar.warp.sync -1;")),
                   ",".join((*("r" for _ in range(count + 1)), *(REGISTER_LETTERS[kind] for _ in each))), given)


def ranked_helper(bits: int) -> str:
    """`g_ranked(label, counters)`: a number for each element from the counter of its label, which goes on.

    All lanes take part. Whatever writes counters (`g_put`, this) ends with the warp's lanes together, so that they are
    read at once.
    """
    return f'''
@triton.jit
def g_ranked(label, counters):
    """How far the counter of each label has come, equal labels one after another in the order of a warp's lanes."""
    return tl.inline_asm_elementwise("""{{ // shared ranked
        .reg .pred %set, %first;
        .reg .b32 %peers, %bit, %alike<2>, %rank, %many, %place, %count;
        {peers(bits)}
        mov.u32 %bit, %lanemask_lt;
        and.b32 %bit, %peers, %bit;
        popc.b32 %rank, %bit;
        popc.b32 %many, %peers;
        mad.lo.s32 %place, $1, 4, $2;
        ld.shared.s32 %count, [%place];
        add.s32 $0, %count, %rank;
        bar.warp.sync -1;
        setp.eq.s32 %first, %rank, 0;
        add.s32 %count, %count, %many;
        @%first st.shared.s32 [%place], %count;
        bar.warp.sync -1;
        }}""", "=&r,r,r", [label, counters], dtype=tl.int32, is_pure=False, pack=1)
'''
