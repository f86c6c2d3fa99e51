"""What random functions over sizes and numbers are made of.

In an expression `N` is a number, `C` a condition, `T` a tensor of rows of 4. What a call has: x, y (tensors), i, j
(numbers), s (a module), G (a global), c (a closure's variable), D (a dictionary), L (a list).
"""

from __future__ import annotations


def _lines(text: str) -> list[str]:
    return text.strip().splitlines()


NUMBERS = _lines("""
i
i
i
x.shape[0]
x.shape[0]
x.shape[0]
x.size(0)
len(x)
x.numel()
x.stride(0)
y.shape[0]
x.shape[-1]
i
j
G
c
s.k
s.rate
D["k"]
L[0]
2
0
-1
1
0.5
3.0
True
""")
"""Numbers of no parts."""

OPERATIONS = _lines("""
safe(lambda: 1 / N)
safe(lambda: 5 / (N - 3))
safe(lambda: 7 // (N - 5))
safe(lambda: 2.0 ** N)
(2 ** min(N, 9))
(N + N)
(N - N)
(N * N)
(N / N)
(N // N)
(N % N)
(N ** 2)
(2 ** min(N, 70))
(-N)
(+N)
abs(N)
max(N, N)
min(N, 7)
(N if C else N)
safe(lambda: N / N)
safe(lambda: N % N)
safe(lambda: N // N)
safe(lambda: 2.0 ** N)
safe(lambda: min(N, 30) ** min(N, 20))
int(N)
float(N)
bool(N)
round(N)
math.floor(N)
math.ceil(N)
math.sqrt(abs(N))
math.copysign(1.0, N)
divmod(N, 3)[1]
len(str(N))
hash(N)
(N & 3)
(N << 1)
(~N)
int(N).bit_length()
{3: 1, 5: 2.5, 8: 3}.get(N, 4)
[1, 2.0, 3][N % 3]
sum(range(N % 5))
sum([N, N])
int(np.int64(N))
float(np.float32(N))
int(N == np.int64(3))
int(str(N)[-1] == "5")
int("%d" % N) % 5
len([1, 2, 3, 4, 5][:N])
len(range(N, N, 2))
sorted([N, N, 3])[1]
(N, N, 5).index(5)
(N or 2)
(N and 3)
copy.copy(N)
operator.index(N)
operator.add(N, N)
functools.reduce(operator.add, [N, N])
pow(N, 2, 5)
T.shape[0]
T.numel()
T.dim()
T.stride(0)
T.storage_offset()
T.nbytes
len(T)
math.prod(T.shape)
""")
"""Numbers made of others."""

CONDITIONS = _lines("""
N > 6
N < 8
N > N
N == 8
N % 3 == 1
N < N
N == N
N != N
N > 4
N >= 8
N <= 3
N == 5
N in (1, 3, 8)
N % 2 == 0
not N
N
isinstance(N, int)
isinstance(N, float)
isinstance(N, bool)
type(N) is int and N > 6
N is None
N is not None
N is G
N == Level.SOME
N == 3.0
N == decimal.Decimal(5)
N == np.int64(5)
3 <= N < 9
C and C
C or C
not C
x.shape == y.shape
x.shape[0] == 7
T.shape == x.shape
T.numel() > 20
hasattr(N, "is_integer")
(N).__class__ is int
str(N).startswith("-")
s.training
genesis.is_grad_enabled()
s.cache is None
x is y
len(x.shape) == 2
x.is_contiguous()
""")
"""Conditions."""

TENSORS = _lines("""
x
x
x
y
(T + N)
(T - N)
(N - T)
(T * N)
(T / N)
(T % 3 + N)
(T + T[:1])
(T * T.mean())
(T @ s.w)
(T @ w)
T[:N]
T[N:]
T[N:N]
T[-N:]
T[::2]
T[N % 3:]
T[:, None].sum(1)
T.flip(0)
T.roll(N, 0)
T.t().t()
T.reshape(-1, 4)
T.reshape(T.shape[0] * 2, 2).reshape(-1, 4)
T.view(T.shape)
T.flatten().view(-1, 4)
T.contiguous()
T.clone()
T.detach()
T.expand(T.shape[0], 4)
T.softmax(-1)
T.softmax(0)
T.cumsum(0)
T.clamp(max=N)
T.clamp(N, 50)
T.masked_fill(T > N, N)
genesis.where(T > N, T, N)
genesis.cat([T, T])
genesis.cat([T, T[:2]])
genesis.stack([T, T]).sum(0)
(T if C else T)
F.pad(T, (0, 0, N % 3, 1))
F.layer_norm(T, (T.shape[-1],))
F.relu(T)
genesis.full((T.shape[0], 4), N)
genesis.full((2, 4), N)
genesis.ones(T.shape) * N
genesis.zeros(N % 5, 4)
genesis.arange(T.numel()).view(T.shape)
genesis.arange(N % 7)[:, None].expand(-1, 4)
genesis.ones_like(T)
T.new_full((3, 4), N)
T.float()
T.long()
T.half().float()
T.double()
T.abs().sqrt()
T.add(T, alpha=N)
genesis.lerp(T, T * 2, N)
T.clone().add_(N)
F.dropout(T.float(), 0.3)
T + genesis.rand(T.shape[0], 1)
T * genesis.randint(1, 4, (4,))
s.norm(T.float())
s.norm(T.float())
T.clone().mul_(2).fill_(N)
T.clone().zero_().add_(T)
put(T, N)
T.split(2)[0]
T.chunk(2)[0]
T.narrow(0, 0, T.shape[0] // 2)
T.unbind(0)[0][None]
T.repeat(2, 1)
T.repeat(N % 3 + 1, 1)
T.tril()
T.tril(N)
T.sort(0)[0]
T.topk(2, 1)[0].repeat(1, 2)
T[T[:, 0] > 3]
T[genesis.arange(T.shape[0] - 1, -1, -1)]
T.mean(0, keepdim=True)
T.sum(0)[None]
T.sum(N % 2).sum() * T
T.max(0, keepdim=True)[0]
F.one_hot(genesis.arange(4), 4) * N
s.cache[:30]
helper(T, N)
sum((row for row in T), genesis.zeros(4))[None]
""")
"""Tensors of rows of 4, mostly."""

STATEMENTS = _lines("""
t = T
t = T
u = T
n = N
n = N
m = N
if C: t = t * 3
if C: t = t + N
if C: t = T
if C: n = 9
if C: n = N
if C: return T
if C: raise KeyError(N)
for k in range(N % 4): t = t + k
for k in range(3): n = n + N
for k in (N, N): t = t * k
while 0 <= n < 3: n = n + 2
t = t * 1; t.add_(N); t[:1] = N
t = t * 1; t[N % 2] = N
t, u = u, t
n, m = m, n
t = caught(lambda: T, t)
n = caught(lambda: N, n)
""")
"""Statements that write to no more than their variables."""

EFFECTS = _lines("""
s.k = small(N)
s.k += 1
s.k = small(s.k + N)
s.rate = small(N)
s.rate = s.rate * 0.5
s.last = small(N)
s.last = T
s.last = (N, T.shape)
s.text = str(N)
s.cache = T
s.cache = T if s.cache is None else genesis.cat([s.cache, T])
s.cache = None if C else T
s.seen.append(small(N))
s.seen.append(T.sum())
D["k"] = small(N)
D["m"] = small(N)
L[0] = small(N)
L.append(small(N))
G = small(N)
c = small(N)
c = c + 1
x.add_(N)
b.add_(N)
b.mul_(0.5).add_(T.detach().sum(0).clamp(-9, 9))
b[:, 1] = 3
with genesis.no_grad(): b[:4].lerp_(s.w.detach(), 0.5)
x[:N] = 0
y.mul_(2)
b[:x.shape[0]] = x[:8]
assert N != 5
with genesis.no_grad(): t = T
with genesis.set_grad_enabled(C): t = T
t = checked(T)
class Local: size = N
f = lambda v: v * N; t = f(t)
q = [N * k for k in range(2)]; n = q[-1]
n = Level(3) + N
q = dict(a=N, b=T); t = q["b"] * q["a"]
q = Pair(T, N); t = q.t + q.n
""")
"""Other statements."""

RETURNS = _lines("""
T
T
t
t, n
(t, u, n, m)
[t, x]
dict(t=t, n=n, m=(m, N))
t, t.shape, N
(x, t)
x
t.sum()
Pair(t, n)
(t, t.t(), t[:1])
n, N
(t, str(n), C)
t * n + m
""")
"""What functions return."""

CHANGES = _lines("""
s.k = V
s.rate = V
D["k"] = V
L[0] = V
space["G"] = V
s.cache = None
s.train(not s.training)
s.w.requires_grad_(not s.w.requires_grad)
del s.seen[:]
""")
"""What happens between calls; `V` is a number."""

VALUES = (5, 4, 3, 7, 0, -1, 2, 1, 6, 8, 9, 300, -3, 2**40, 0.5, 0.25, -0.0, 0.0, 1.0, 2.0, 3.0, 5.0, float("inf"),
          float("nan"), -2.5, 1e300, True, False)
"""Numbers that calls and changes draw from."""

STEADY = (5, 7, 9, 12, 6, 2.5, 0.75, 4.5, True)
"""Numbers that the first calls draw from: most functions do the same for them."""

DTYPES = ("float32", "float32", "float32", "float64", "int64")
"""Dtypes of tensors."""

ROWS = (7, 9, 12, 5, 31, 8, 2, 3, 4, 1, 0, 16, 6, 40)
"""Rows of tensors."""
