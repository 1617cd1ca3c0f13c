"""The shapes of ops.rs in torch, GFLOP/s: python torch_ops.py [threads].

With one thread the time is processor time, which other programs on the machine disturb less; else it is wall time.
"""

import sys
import time

import torch
import torch.nn.functional as F

THREADS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
CLOCK = time.process_time if THREADS == 1 else time.perf_counter
LINEAR = [(1024, 1024, 1024), (1024, 1024, 3072), (1024, 3072, 1024)]
LINEAR += [(256, 2048, 2048), (256, 2048, 6144), (256, 6144, 2048), (1, 2048, 6144)]
# Input and output channels, side of the input, side of the kernel, upsampling.
CONV = [(64, 1152, 16, 3, 1), (1152, 1152, 16, 3, 1), (1152, 1152, 32, 3, 1), (576, 576, 64, 3, 1)]
CONV += [(288, 288, 128, 3, 1), (288, 288, 64, 3, 2), (144, 144, 256, 3, 1), (1152, 576, 64, 1, 1)]


def rate(flop, work):
    """GFLOP/s of the best of at least five rounds and half a second."""
    work()
    best, start, rounds = float("inf"), time.time(), 0
    while rounds < 5 or time.time() - start < 0.5:
        begin = CLOCK()
        work()
        best = min(best, CLOCK() - begin)
        rounds += 1
    return flop / best / 1e9


def convolution(x, weight, kernel, upsample):
    if upsample > 1:
        x = F.interpolate(x, scale_factor=upsample, mode="nearest")
    return F.conv2d(x, weight, padding=kernel // 2)


torch.set_num_threads(THREADS)
with torch.inference_mode():
    for n, k, m in LINEAR:
        x, weight = torch.randn(n, k), torch.randn(m, k)
        rates = [rate(2 * n * k * m, lambda: F.linear(x, weight))]
        x, weight = x.bfloat16(), weight.bfloat16()
        rates.append(rate(2 * n * k * m, lambda: F.linear(x, weight)))
        print(f"linear {n} x {k} -> {m}: f32 {rates[0]:.1f}, bf16 {rates[1]:.1f}", flush=True)
    for c, m, side, kernel, upsample in CONV:
        x, weight = torch.randn(1, c, side, side), torch.randn(m, c, kernel, kernel)
        flop = 2 * c * m * (kernel * side * upsample) ** 2
        result = rate(flop, lambda: convolution(x, weight, kernel, upsample))
        up = ", up" if upsample > 1 else ""
        print(f"conv {kernel}x{kernel} {c} -> {m}, {side} px{up}: f32 {result:.1f}", flush=True)
