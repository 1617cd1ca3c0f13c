"""The cases of `attention.rs` in torch, f32, 2 threads: best of several runs."""

import time

import torch
import torch.nn.functional as F

torch.set_num_threads(2)

CASES = [
    (1024, 1024, 16, 16, 64),
    (1024, 1024, 16, 16, 128),
    (4096, 4096, 16, 16, 64),
    (4096, 4096, 16, 16, 128),
    (1024, 1024, 16, 16, 72),
    (256, 256, 32, 8, 128),
    (1024, 1024, 1, 1, 1152),
    (4096, 4096, 1, 1, 1152),
    (1, 4096, 32, 8, 128),
]


def best(f):
    start, shortest, runs = time.perf_counter(), float("inf"), 0
    while runs < 5 or (time.perf_counter() - start < 1.0 and runs < 1000):
        run = time.perf_counter()
        f()
        shortest = min(shortest, time.perf_counter() - run)
        runs += 1
    return shortest


def tokens(n, heads, dim):
    """[1, heads, n, dim] over rows of heads * dim, as a model has it."""
    return torch.randn(1, n, heads, dim).transpose(1, 2)


@torch.no_grad()
def main():
    for n, m, heads, kv_heads, dim in CASES:
        q, k, v = tokens(n, heads, dim), tokens(m, kv_heads, dim), tokens(m, kv_heads, dim)
        for causal in [False, True]:
            group = {"enable_gqa": True} if heads != kv_heads else {}
            seconds = best(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal and n > 1, **group))
            pairs = n * (m - n) + n * (n + 1) // 2 if causal else n * m
            rate = 4 * pairs * heads * dim / seconds / 1e9
            name = "causal" if causal else "all"
            print(
                f"attention {name:<6} {n:>5} x {m:<5} {heads:>2}/{kv_heads:<2} heads of {dim:<4} "
                f"{seconds * 1e3:>9.3f} ms {rate:>7.1f} GFLOP/s"
            )
    x, y, weight = torch.randn(1024, 4096), torch.randn(1024, 4096), torch.randn(4096)
    size = x.numel()
    for name, moved, f in [
        ("add", 3 * size, lambda: x + y),
        ("gated_add", 3 * size, lambda: torch.addcmul(x, weight, y)),
        ("silu", 2 * size, lambda: F.silu(x)),
        ("gelu", 2 * size, lambda: F.gelu(x)),
        ("gelu_tanh", 2 * size, lambda: F.gelu(x, approximate="tanh")),
        ("tanh", 2 * size, lambda: torch.tanh(x)),
        ("swiglu", 3 * size, lambda: F.silu(x) * y),
        ("rms_norm", 2 * size, lambda: F.rms_norm(x, (4096,), weight, 1e-6)),
        ("layer_norm", 2 * size, lambda: F.layer_norm(x, (4096,), weight, weight, 1e-6)),
        ("transpose", 2 * size, lambda: x.T.contiguous()),
        ("concat", 4 * size, lambda: torch.cat([x, y])),
    ]:
        seconds = best(f)
        print(f"{name:<20} {seconds * 1e3:>9.3f} ms {4 * moved / seconds / 1e9:>7.1f} GB/s")
    picture, gamma = torch.randn(1, 96, 256, 256), torch.randn(96, 1, 1)
    for name, f in [
        ("channel_norm", lambda: F.normalize(picture, dim=1) * 96**0.5 * gamma),
        ("channel_norm + silu", lambda: F.silu(F.normalize(picture, dim=1) * 96**0.5 * gamma)),
    ]:
        seconds = best(f)
        print(f"{name:<20} {seconds * 1e3:>9.3f} ms {8 * picture.numel() / seconds / 1e9:>7.1f} GB/s")


main()
