"""Measures an exported looker through its 8-bit weights, in the reference classes.

    python evaluate_looker.py DATA LOOKER_FOLDER OUT_JSON EVERY [PAINTER_FOLDER | PROGRAM]

Pictures are drawn anew from seeds that training never used: other places, sizes, mirror images and backgrounds. EVERY = n asks
about every n-th concept only. With a painter, instead, every EVERY-th concept is painted ("a NAME", seed 900,000 on) and
named; `judge.py` tells apart the paintings that look like what was asked for. With the built program it names through that,
which takes a fiftieth of the time (`check_looker.py` compares its answers with the reference's).
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from PIL import Image

import captions as C
from export_looker import ask, read
from looker_pictures import Sprites
from looker_scenes import draw_scene, facts
from looker_talk import DEFAULT, NUMBERS, NUMBERS_ZH, Talk

SEED = 7_000_000_000


class Evaluation:
    def __init__(self, data, folder, out, program=None):
        self.folder, self.program = folder, program
        self.concepts = C.Concepts(json.load(open(f"{data}/names.json")))
        self.talk, self.sprites = Talk(self.concepts), Sprites(f"{data}/pictures.pkl", "cpu")
        if not program: self.model, self.processor = read(folder)
        self.out, self.rows, self.start = out, {}, time.time()

    def scene(self, rng, kind, concept=None, style=None):
        while True:
            s = draw_scene(self.concepts, rng)
            if s["kind"] == kind: break
        if style is not None: s["style"] = style
        if concept is not None:
            s["objects"] = [(concept, *o[1:]) for o in s["objects"]]
            if self.concepts.rows[concept]["group"] not in C.MIRRORED: s["flips"] = [0] * len(s["flips"])
        return s

    def pictures(self, scenes):
        torch.manual_seed(SEED % 2**31)
        x, _ = self.sprites.compose(np.array([facts(s) for s in scenes], np.float32), jitter=False)
        return [Image.fromarray(p) for p in (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()]

    def answers(self, pictures, questions):
        out = []
        if self.program:
            with tempfile.TemporaryDirectory() as t:
                for picture, question in zip(pictures, questions):
                    picture.save(f"{t}/p.png", compress_level=1)
                    out.append(subprocess.run([self.program, "describe", f"{t}/p.png", "-p", question, "--model", self.folder], capture_output=True, text=True).stdout.strip())
            return out
        for k in range(0, len(questions), 48): out += ask(self.model, self.processor, pictures[k:k + 48], questions[k:k + 48])
        return out

    def report(self, label, right, wrong):
        self.rows[label] = dict(asked=len(right), right=round(100 * sum(right) / max(1, len(right)), 1), wrong=wrong[:40])
        print(f"{label}: {self.rows[label]['right']} % of {len(right)}; {time.time() - self.start:.0f} s", wrong[:3], flush=True)
        json.dump(self.rows, open(self.out, "w"), indent=1, ensure_ascii=False)

    def score(self, label, scenes, questions, wanted, pictures=None):
        """wanted: for each answer a test."""
        got = self.answers(pictures or self.pictures(scenes), questions)
        right = [bool(w(g)) for w, g in zip(wanted, got)]
        self.report(label, right, [[q, [self.concepts.rows[o[0]]["en"] for o in s["objects"]], g] for q, s, g, r in zip(questions, scenes, got, right) if not r])
        return right

    # What counts as right: the name itself, its own everyday words, or the name of the same drawing.
    def names(self, i, lang):
        i = self.talk.same.get(i, i)
        same = [k for k, v in self.talk.same.items() if v == i]
        return {w.lower() for k in [i, *same] for w in self.talk.words[lang][k]}

    def named(self, i, lang):
        names = self.names(i, lang)
        forms = {f(w) for w in names for f in ((C.article, C.plural) if lang == "en" else (str,))} | names
        def test(answer):
            text = answer.lower()
            if lang == "en":
                text = text.removeprefix("this is ").removeprefix("these are ").split(" on a ")[0].split(" on an ")[0].rstrip(".")
                return text in {f.lower() for f in forms}
            text = text.split("，")[1] if text.count("，") > 1 else text
            text = text.removeprefix("这是").rstrip("。")
            return text[2:] in forms or text in forms
        return test

    def naming(self, every):
        rng = random.Random(SEED)
        for style in (0, 1):
            for lang, question in (("en", DEFAULT), ("zh", "这是什么？")):
                step = every if lang == "en" else 2 * every
                ids = list(range(style, self.concepts.n, step))
                scenes = [self.scene(rng, "one", i, style) for i in ids]
                self.score(f"naming, {C.STYLES[style]}, {lang}", scenes, [question] * len(ids), [self.named(i, lang) for i in ids])

    def task(self, label, lang, n, kinds, make, seed):
        """make(scene, rng) -> question and test, or None."""
        rng = random.Random(SEED + seed)
        scenes, questions, tests = [], [], []
        while len(scenes) < n:
            s = self.scene(rng, rng.choice(kinds))
            made = make(s, lang, rng)
            if made: scenes.append(s); questions.append(made[0]); tests.append(made[1])
        self.score(f"{label}, {lang}", scenes, questions, tests)

    def tasks(self, n):
        t = self.talk
        def count(s, lang, rng):
            w = t.asked(s["objects"][0][0], lang, rng)
            k, i = len(s["objects"]), s["objects"][0][0]
            if k == 1 and C.is_plural(self.concepts.rows[i]["en"]): return None
            if lang == "en": return f"How many {C.plural(w)} are there?", lambda g: f" {NUMBERS[k]} " in g
            return f"有几个{w}？", lambda g: NUMBERS_ZH[k] in g[:3]
        def background(s, lang, rng):
            if lang == "en": return "What colour is the background?", lambda g: g.strip() == f"The background is {t.colour(s, lang)}."
            return "背景是什么颜色？", lambda g: g.strip() == f"背景是{t.colour(s, lang)}。"
        def style(s, lang, rng):
            return ("Which style?", lambda g: C.STYLES[s["style"]] in g) if lang == "en" else ("这是什么风格？", lambda g: ("3D", "扁平")[s["style"]] in g)
        def layout(s, lang, rng):
            """Which of two is where: both names and the relation in a description."""
            question, answer = t.describe(s, lang, rng)
            return (DEFAULT if lang == "en" else "描述这张图片。"), lambda g: g.strip() == answer
        def yes_no(s, lang, rng):
            question, answer = t.yes_no(s, lang, rng)
            word = answer.replace("，", ",").split(",")[0]
            return question, lambda g: g.replace("，", ",").split(",")[0] == word
        def relation(s, lang, rng):
            while True:
                question, answer = t.relation(s, lang, rng)
                if answer[:2] in ("Ye", "No", "是的", "不是") and "Nothing" not in answer and "没有" not in answer: break
            word = answer.replace("，", ",").split(",")[0]
            return question, lambda g: g.replace("，", ",").split(",")[0] == word
        def beside(s, lang, rng):
            while True:
                question, answer = t.relation(s, lang, rng)
                if answer[:2] not in ("Ye", "No", "是的", "不是", "没有"): break
            return question, lambda g: g.strip() == answer
        for k, (label, kinds, make) in enumerate([
                ("count, one to four copies", ["one", "count", "count", "count"], count), ("background colour", ["one", "two", "count"], background),
                ("style", ["one", "two", "count"], style), ("yes or no: is it there", ["one", "two", "count"], yes_no),
                ("yes or no: is A left of B", ["two"], relation), ("what is left of, next to, where", ["two"], beside),
                ("two objects: both names, order, background, style", ["two"], layout), ("copies: name, number, background, style", ["count"], layout)]):
            for j, lang in enumerate(("en", "zh")): self.task(label, lang, n, kinds, make, 10 * k + j + 1)
        rng = random.Random(SEED + 500)
        strange = [self.scene(rng, "strange") for _ in range(40)]
        self.score("nonsense: says that it is not sure", strange, [DEFAULT] * 40, [lambda g: g.startswith("I am not sure")] * 40)

    def painted(self, folder, every):
        from judge import Judge, over_white
        from painter import Painter
        from pictures import Pictures
        painter = Painter(folder)
        ids = list(range(0, self.concepts.n, every))
        x = torch.cat([painter.paint([C.article(self.concepts.rows[i]["en"]) for i in ids[k:k + 16]], range(900_000 + k, 900_000 + k + len(ids[k:k + 16])))
                       for k in range(0, len(ids), 16)])
        judge = Judge(Pictures(f"{DATA}/pictures.pkl", "cpu"), 0, "cpu")
        good = (judge.ranks(x, [[i] for i in ids]) == 0).tolist()
        pictures = [Image.fromarray(p) for p in (over_white(x) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()]
        self.report("painted as asked, says the judge", good, [])
        for lang, question in (("en", DEFAULT), ("zh", "这是什么？")):
            scenes = [dict(objects=[(i,)]) for i in ids]
            right = self.score(f"naming of painted pictures, {lang}", scenes, [question] * len(ids), [self.named(i, lang) for i in ids], pictures)
            self.report(f"naming of painted pictures that the judge accepts, {lang}", [r for r, g in zip(right, good) if g], [])


def main():
    global DATA
    DATA, folder, out, every, *other = sys.argv[1:]
    program = next((o for o in other if os.path.isfile(o)), None)
    e = Evaluation(DATA, folder, out, program)
    if other and not program: return e.painted(other[0], int(every))
    e.naming(int(every))
    e.tasks(max(24, 240 // int(every)))


if __name__ == "__main__":
    main()
