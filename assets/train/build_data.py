"""Builds the training data from named npm packages: `pictures.pkl` (two styles, 256 px, RGBA WebP) and `names.json`.

Concepts are the emoji of six emojibase groups (faces, animals, food, travel, activities, objects) without the 24 clock
faces, and from the other groups (people, symbols) those that `words.txt` names. Each row of `names.json` holds the
English and the Chinese name, the group, and further words: `hand` from `words.txt`, `tags` from emojibase (a tag that
up to three concepts share may mean any of them).

    python build_data.py NPM_FOLDER OUT_FOLDER      # NPM_FOLDER holds the unpacked packages, see README.md
"""
import collections
import glob
import io
import json
import os
import pickle
import re
import sys

import resvg_py
from PIL import Image

GROUPS = {0: "faces", 1: "people", 3: "animals", 4: "food", 5: "travel", 6: "activities", 7: "objects", 8: "symbols"}
WHOLE_GROUPS = (0, 3, 4, 5, 6, 7)
SHARED = 3                                                   # a tag of more concepts than this says too little
EN = re.compile(r"[a-z][a-z '\-]{2,20}")
ZH = re.compile(r"[\u4e00-\u9fff]{2,6}")
PART = re.compile(r" (?:with|of|on|in|over|at|behind|without|showing) ")


def code(hexcode):
    return "-".join(p for p in hexcode.upper().split("-") if p != "FE0F")


def clean(text):
    return text.replace("’", "'").replace("“", "").replace("”", "").strip()


def read_words(path):
    """label -> (English words, Chinese words)"""
    out = {}
    for line in open(path, encoding="utf-8"):
        if "|" in line and not line.startswith("#"):
            label, en, zh = (p.strip() for p in line.split("|"))
            split = lambda s: [w.strip() for w in s.split(",") if w.strip()]
            out[clean(label)] = [re.sub(r"^an? ", "", w) for w in split(en)], split(zh)
    return out


class FlatIcons:
    """Fluent flat from the iconify package: SVG bodies by code point."""

    def __init__(self, folder):
        self.set = json.load(open(folder + "/icons.json"))
        chars = json.load(open(folder + "/chars.json"))
        self.by_code = {code(k): v for k, v in chars.items() if v in self.set["icons"]}

    def picture(self, hexcode, side=256):
        v = self.set["icons"][self.by_code[hexcode]]
        w, h = v.get("width", self.set.get("width", 32)), v.get("height", self.set.get("height", 32))
        svg = (f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="{w}" '
               f'height="{h}" viewBox="{v.get("left", 0)} {v.get("top", 0)} {w} {h}">{v["body"]}</svg>')
        png = bytes(resvg_py.svg_to_bytes(svg_string=svg, width=side, height=side))
        buffer = io.BytesIO()
        Image.open(io.BytesIO(png)).convert("RGBA").save(buffer, "webp", lossless=True, method=4)
        return buffer.getvalue()


def further_words(rows, hand):
    """Adds `hand` and `tags` to the rows; `tags` is a list of [word, weight]."""
    for lang, pattern in (("en", EN), ("zh", ZH)):
        k = 0 if lang == "en" else 1
        taken = {r[lang].lower() for r in rows} | {w.lower() for pair in hand.values() for w in pair[k]}
        found = []
        for r in rows:
            tags = {clean(t).lower() for t in r.pop("raw_" + lang)}
            if lang == "en" and " " in r["en"] and r["group"] not in ("faces", "symbols"):
                tags.add(PART.split(r["en"].lower())[0].split()[-1])          # the head noun
            found.append({t for t in tags if pattern.fullmatch(t) and t not in taken})
        count = collections.Counter(t for tags in found for t in tags)
        names = {r[lang].lower() for r in rows}
        for r, tags in zip(rows, found):
            own = hand.get(r["en"], ([], []))[k]
            r["hand_" + lang] = [w for w in dict.fromkeys(own) if w.lower() not in names]
            r["tags_" + lang] = [[t, 1.0 if count[t] == 1 else 0.5] for t in sorted(tags) if count[t] <= SHARED]


def main():
    npm, out = sys.argv[1:3]
    one = lambda pattern: glob.glob(f"{npm}/{pattern}")[0]
    flat = FlatIcons(one("iconify-json-fluent-emoji-flat-*"))
    three_d = {code(os.path.basename(f)[:-5]): f for f in glob.glob(one("lobehub-fluent-emoji-3d-*") + "/assets/*.webp")}
    base = one("emojibase-data-*")
    en, zh = ({code(e["hexcode"]): e for e in json.load(open(f"{base}/{lang}/data.json"))} for lang in ("en", "zh"))
    hand = read_words(os.path.join(os.path.dirname(os.path.abspath(__file__)), "words.txt"))
    rows, pictures = [], []
    for hexcode, e in en.items():
        name = clean(e["label"])
        if hexcode not in flat.by_code or hexcode not in three_d or e.get("group") not in GROUPS:
            continue
        if name.endswith("o'clock") or name.endswith("-thirty"):
            continue                                         # differ only in their hands
        if e["group"] not in WHOLE_GROUPS and name not in hand:
            continue
        rows.append(dict(hex=hexcode, en=name, zh=clean(zh[hexcode]["label"]), group=GROUPS[e["group"]],
                         raw_en=e.get("tags", []), raw_zh=zh[hexcode].get("tags", [])))
        pictures.append((open(three_d[hexcode], "rb").read(), flat.picture(hexcode)))
    further_words(rows, hand)
    os.makedirs(out, exist_ok=True)
    pickle.dump(pictures, open(out + "/pictures.pkl", "wb"))
    json.dump(rows, open(out + "/names.json", "w"), ensure_ascii=False, indent=0)
    print(len(rows), "concepts;", {g: sum(r["group"] == g for r in rows) for g in GROUPS.values()})
    print(os.path.getsize(out + "/pictures.pkl"), "bytes of pictures")
    for k in ("hand_en", "hand_zh", "tags_en", "tags_zh"):
        print(k, sum(len(r[k]) for r in rows))


if __name__ == "__main__":
    main()
