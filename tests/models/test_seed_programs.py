"""The project's first pages: their programs run as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

QUICK_START = '''
import genesis
import genesis.nn as nn
import genesis.optim as optim

# 设备管理 - 自动GPU选择
device = genesis.device('cuda' if genesis.cuda_available() else 'cpu')

# 创建支持自动微分的张量
x = genesis.randn(32, 784, device=device, requires_grad=True)
y = genesis.randn(32, 10, device=device)

# 构建简单神经网络
class SimpleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 256)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x):
        x = self.fc1(x)
        x = self.relu(x)
        x = self.fc2(x)
        return x

# 初始化模型和优化器
model = SimpleNet().to(device)
optimizer = optim.Adam(model.parameters(), lr=0.001)
criterion = nn.CrossEntropyLoss()

# 训练步骤
output = model(x)
loss = criterion(output, y)
loss.backward()
optimizer.step()

print(f"损失: {loss.item():.4f}")
'''

LAYER = '''
import genesis
from genesis.nn import Module, Parameter

class Linear(Module):
    """全连接层实现"""
    def __init__(self, in_features, out_features):
        self.weight = Parameter(genesis.randn(out_features, in_features))
        self.bias = Parameter(genesis.zeros(out_features))

print(len(list(Linear(3, 2).parameters())))
'''

ADDITION = '''
from genesis import Tensor
a = Tensor([1, 2, 3], requires_grad=True)
b = Tensor([4, 5, 6], requires_grad=True)
c = a + b
c.backward(Tensor([1, 1, 1]))
print(a.grad.tolist(), b.grad.tolist())
'''


def run(program: str, folder: Path) -> str:
    """What the program prints, as a script of its own."""
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    root = Path(__file__).resolve().parents[2]
    result = subprocess.run([sys.executable, str(script)], capture_output=True, cwd=folder, check=False,
                            env={"PYTHONPATH": str(root), "PYTHONIOENCODING": "utf-8", "PATH": "/usr/bin:/bin"})
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode("utf-8").strip()


def test_quick_start(tmp_path: Path) -> None:
    assert re.fullmatch(r"损失: -?\d+\.\d{4}", run(QUICK_START, tmp_path))


def test_a_layer_of_ones_own(tmp_path: Path) -> None:
    assert run(LAYER, tmp_path) == "2"


def test_addition(tmp_path: Path) -> None:
    assert run(ADDITION, tmp_path) == "[1.0, 1.0, 1.0] [1.0, 1.0, 1.0]"
