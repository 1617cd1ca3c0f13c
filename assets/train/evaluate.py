"""Measures an exported folder: python evaluate.py DATA MODEL_FOLDER OUT [EVERY [PART ...]]
EVERY = n asks only every n-th question of the long lists; parts: show names words two count background seeds more tags vae.

Writes OUT/figures.json, OUT/wrong.json (what was asked and what came instead) and contact sheets.
"""
import json
import random
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

from captions import BACKGROUNDS, HELD_OUT, LAYOUTS, Concepts, article, plural
from judge import Judge
from painter import Painter
from pictures import Pictures
from sheet import sheet

SHOW = """a red apple|a slice of pizza|a cute cat|a photo of a dog|draw me a rocket|could you paint a car?|a fox in flat style|a happy face
a house on a light blue background|two cats|three strawberries|four stars|a cat to the left of a dog|an owl above a mushroom|a red apple and a slice of pizza|a robot on a black background
一个苹果|一只猫|一辆汽车|请帮我画一朵花|火箭的照片|两只狗|蓝色背景上的一只狐狸|猫在狗的左边
apple|car|flower|tree|boat|a bicycle|a penguin on a transparent background|a birthday cake, flat style
a piano|a guitar and a drum|a snowman|a castle|xyzzy|quantum gravity| |a butterfly
draw me a panda|a photo of a hamburger|a photo of an airplane|could you paint two birds?|bear|a princess|a mermaid, flat|a dragon
一只恐龙|画一个机器人|三个气球|红色的心|月亮|太阳在云的上面|一杯咖啡|公主，扁平风格"""


class Report:
    def __init__(self, out, painter, judges, every):
        self.out, self.painter, self.judges, self.every = out, painter, judges, every
        self.figures, self.wrong, self.start = {}, {}, time.time()

    def show(self, label, **values):
        self.figures[label] = values
        print(label, values, f"{time.time() - self.start:.0f} s", flush=True)
        json.dump(self.figures, open(f"{self.out}/figures.json", "w"), indent=1, ensure_ascii=False)

    def score(self, label, ranks):
        self.show(label, n=len(ranks), top1=round(float((ranks < 1).float().mean()), 4), top5=round(float((ranks < 5).float().mean()), 4))

    def ask(self, label, questions, style=0, seed=0, picture=None):
        """questions: (prompt, right concepts)."""
        questions = questions[::self.every]
        x = self.painter.paint([q for q, _ in questions], range(seed, seed + len(questions)))
        ranks = self.judges[style].ranks(x, [a for _, a in questions])
        self.score(label, ranks)
        self.wrong[label] = [q for (q, _), r in zip(questions, ranks.tolist()) if r]
        json.dump(self.wrong, open(f"{self.out}/wrong.json", "w"), indent=1, ensure_ascii=False)
        if picture:
            step = max(1, len(x) // 160)
            sheet(x[::step][:160], [q for q, _ in questions[::step]][:160], f"{self.out}/{picture}.png", 16, 96)


def everyday(concepts, lang):
    """(word, the concepts it may mean), by-hand words and tags."""
    means = {}
    for i, r in enumerate(concepts.rows):
        for w in r["hand_" + lang] + [t for t, _ in r["tags_" + lang]]: means.setdefault(w, []).append(i)
    by_hand = {w for r in concepts.rows for w in r["hand_" + lang]}
    return [(w, ids) for w, ids in means.items() if w in by_hand], [(w, ids) for w, ids in means.items() if w not in by_hand]


def vae_rows(report):
    for style, judge in enumerate(report.judges):
        ranks, real, error = [], [], []
        for x, at in zip(judge.real(), np.array_split(np.arange(judge.n), max(1, judge.n // 128))):
            y = report.painter.rebuild(x)
            answers = [[i] for i in at]
            ranks.append(judge.ranks(y, answers)); real.append(judge.ranks(x, answers))
            error.append(((y - x)[:, :3] ** 2).mean((1, 2, 3)))
        name = ("3D", "flat")[style]
        report.score(f"real pictures, {name}", torch.cat(real)); report.score(f"VAE reconstruction, {name}", torch.cat(ranks))
        psnr = 10 * torch.log10(4 / torch.cat(error))
        report.show(f"VAE PSNR, {name}", mean=round(float(psnr.mean()), 2), worst_tenth=round(float(psnr.quantile(0.1)), 2))


def two_objects(report, rows, rng):
    n, judge = 384 // report.every, report.judges[0]
    en, zh = (lambda i: article(rows[i]["en"])), (lambda i: "一个" + rows[i]["zh"])
    for relation, say in (("beside", lambda a, b: f"{en(a)} to the left of {en(b)}"), ("above", lambda a, b: f"{en(a)} above {en(b)}"),
                          ("beside, second named first", lambda a, b: f"{en(b)} to the right of {en(a)}"),
                          ("beside, Chinese", lambda a, b: f"{zh(a)}在{zh(b)}的左边"), ("above, Chinese", lambda a, b: f"{zh(a)}在{zh(b)}的上面")):
        pairs = [rng.sample(range(len(rows)), 2) for _ in range(n)]
        asked = [say(i, j) for i, j in pairs]
        x = report.painter.paint(asked, range(n))
        halves = (x[..., :128], x[..., 128:]) if "beside" in relation else (x[:, :, :128], x[:, :, 128:])
        means = lambda i: [j for j in range(len(rows)) if rows[j]["zh"] == rows[i]["zh"]] if "Chinese" in relation else [i]
        right = [judge.ranks(h, [means(p[k]) for p in pairs]) < 1 for k, h in enumerate(halves)]
        turned = [judge.ranks(h, [means(p[1 - k]) for p in pairs]) < 1 for k, h in enumerate(halves)]
        report.show(f"two objects {relation}", n=n, both_right_in_place=round(float((right[0] & right[1]).float().mean()), 4),
                    wrong_way_round=round(float((turned[0] & turned[1]).float().mean()), 4))
        report.wrong[f"two objects {relation}"] = [q for q, ok in zip(asked, (right[0] & right[1]).tolist()) if not ok]
        if relation in ("beside", "above"): sheet(x[:48], asked[:48], f"{report.out}/two_{relation}.png", 12, 128)


def counts(report, rows, rng):
    asked = [(rng.randrange(len(rows)), rng.choice([2, 3, 4])) for _ in range(384 // report.every)]
    x = report.painter.paint([f"{('two', 'three', 'four')[n - 2]} {plural(rows[i]['en'])}" for i, n in asked], range(len(asked)))
    every = [(m, layout) for m in (2, 3, 4) for layout in LAYOUTS[m]]
    backgrounds = torch.cdist(border_of(x), report.judges[0].colours).argmin(1)
    right, ranks = [], []
    for k, (i, n) in enumerate(asked):
        spec = np.zeros((2 * len(every), 20), np.int64)
        for row, (m, layout) in zip(spec, every * 2): row[:4 + 4 * m] = [3, 0, int(backgrounds[k]), m] + [v for px, py in layout for v in (i, px, py, 0)]
        spec[len(every):, 7::4] = 1                              # mirrored copies
        ref = report.judges[0].pictures.compose(spec)
        m, layout = (every * 2)[int(F.avg_pool2d(ref[:, :3] - x[k, :3], 8).square().flatten(1).sum(1).argmin())]
        right.append(m == n)
        if m == n:
            parts = torch.stack([x[k, :, py:py + 128, px:px + 128] for px, py in layout])
            ranks.append(report.judges[0].ranks(parts, [[i]] * n, backgrounds[k].expand(n)))
    report.show("count right", n=len(asked), share=round(sum(right) / len(right), 4)); report.score("count: each copy", torch.cat(ranks))
    sheet(x[:48], [f"{n} {plural(rows[i]['en'])}" for i, n in asked[:48]], f"{report.out}/counts.png", 12, 128)


def border_of(x):
    from judge import border, over_white
    return border(over_white(x))


def backgrounds(report, rows):
    some = range(0, len(rows), report.every)
    asked = [k % 10 + 1 for k in range(len(some))]
    x = report.painter.paint([f"{article(rows[i]['en'])} on {article(BACKGROUNDS[b][0][0])} background" for i, b in zip(some, asked)], some)
    want = report.judges[0].colours[asked]
    report.show("background within 8 levels", n=len(asked), share=round(float(((border_of(x) - want).abs().amax(1) < 8.5 / 255).float().mean()), 4))
    x = report.painter.paint([f"{article(rows[i]['en'])} on a transparent background" for i in some], some)
    alpha = (x[:, 3, 4:8].mean(1) + 1) / 2
    report.show("transparent background", n=len(some), share=round(float((alpha.median(1)[0] < 0.04).float().mean()), 4))


def variety(report, rows, rng):
    some = rng.sample(range(len(rows)), 64)
    x = report.painter.paint([article(rows[i]["en"]) for i in some for _ in range(4)], [s for i in some for s in range(4)])
    x = x[:, :3].unflatten(0, (-1, 4))
    far = torch.stack([(x[:, a] - x[:, b]).abs().mean((1, 2, 3)) / 2 for a in range(4) for b in range(a)])
    ground = torch.cdist(border_of(torch.cat([x, torch.ones_like(x[:, :, :1])], 2).flatten(0, 1)), report.judges[0].colours).argmin(1)
    report.show("seeds differ", pairs=far.numel(), mean_absolute_levels=round(float(far.mean() * 255), 1), share_over_8_levels=round(float((far > 8 / 255).float().mean()), 4),
                white_background=round(float((ground == 0).float().mean()), 4))


def main():
    data, folder, out = sys.argv[1:4]
    every = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    concepts = Concepts(json.load(open(f"{data}/names.json")))
    rows, rng = concepts.rows, random.Random(7)
    painter, pictures = Painter(folder, device), Pictures(f"{data}/pictures.pkl", device)
    report = Report(out, painter, [Judge(pictures, s, device) for s in (0, 1)], every)
    prompts = SHOW.replace("\n", "|").split("|")
    who = range(len(rows))
    en, zh, held = (lambda i: article(rows[i]["en"])), (lambda i: "一个" + rows[i]["zh"]), HELD_OUT
    twins = lambda i: [j for j in who if rows[j]["zh"] == rows[i]["zh"]]
    words = {(lang, k): found for lang in ("en", "zh") for k, found in zip(("everyday", "tags"), everyday(concepts, lang))}
    form = {"en": article, "zh": lambda w: "一个" + w}

    def ask_words(kind, lang):
        report.ask(f"{kind} words, {lang}, phrasings never trained",
                   [(held[lang][k // every % 3].format(form[lang](w)), ids) for k, (w, ids) in enumerate(words[lang, kind])], picture=f"{kind}_{lang}")

    def names():
        report.ask("names, English, 3D", [(en(i), [i]) for i in who], picture="names")
        report.ask("names, Chinese, 3D", [(zh(i), twins(i)) for i in who])

    def more_names():
        report.ask("names, English, flat", [(en(i) + ", flat style", [i]) for i in who], 1, picture="flat")
        report.ask("names, Chinese, flat", [(zh(i) + "，扁平风格", twins(i)) for i in who], 1)
        report.ask("names, English, phrasings never trained", [(held["en"][i // every % 3].format(en(i)), [i]) for i in who])
        report.ask("names, English, bare", [(rows[i]["en"], [i]) for i in who])
        report.ask("names, English, other seeds", [(en(i), [i]) for i in who], seed=10000)

    parts = {"show": lambda: sheet(painter.paint(prompts, range(len(prompts))), prompts, f"{out}/show.png"), "names": names,
             "words": lambda: [ask_words("everyday", lang) for lang in ("en", "zh")], "two": lambda: two_objects(report, rows, rng),
             "count": lambda: counts(report, rows, rng), "background": lambda: backgrounds(report, rows), "seeds": lambda: variety(report, rows, rng),
             "more": more_names, "tags": lambda: [ask_words("tags", lang) for lang in ("en", "zh")], "vae": lambda: vae_rows(report)}
    for part in sys.argv[5:] or parts:
        parts[part]()


if __name__ == "__main__":
    main()
