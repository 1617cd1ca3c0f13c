"""The shapes of few.rs in torch f32, gigabytes of weights per second: python torch_few.py [threads].

With one thread the time is processor time, as there.
"""

import sys
import time

import torch
import torch.nn.functional as F

THREADS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
CLOCK = time.process_time if THREADS == 1 else time.perf_counter
BYTES, PASSES = 256 << 20, 4

torch.set_num_threads(THREADS)
with torch.inference_mode():
    for k, m in [(2048, 2048), (2048, 6144), (6144, 2048)]:
        weights = [torch.randn(m, k) for _ in range(-(-BYTES // (4 * m * k)))]
        moved = 4 * m * k * len(weights)
        rates = []
        for n in [1, 2, 4, 8]:
            x, best = torch.randn(n, k), float("inf")
            for _ in range(5):
                start = CLOCK()
                for _ in range(PASSES):
                    for weight in weights:
                        F.linear(x, weight)
                best = min(best, (CLOCK() - start) / PASSES)
            rates.append(f"{moved / best / 1e9:>9.1f}")
        print(f"F32 {k} -> {m}", *rates, flush=True)
