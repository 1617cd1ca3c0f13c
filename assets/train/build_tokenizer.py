"""Byte-level BPE with Qwen's normaliser, pre-tokenizer and special tokens (taken from a Qwen tokenizer.json).

Names and the words of the templates are given apart, so that no Chinese merge crosses from a template into a name.

    python build_tokenizer.py DATA_FOLDER QWEN_TOKENIZER_JSON       # writes DATA_FOLDER/tokenizer.json
"""
import json
import random
import re
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import captions as C
from models import VOCAB


def corpus(concepts, rng):
    out = []
    for r in concepts.rows:
        out += [C.article(r["en"]), "the " + C.plural(r["en"]), r["zh"]] * 6 + [r["en"], r["en"][0].upper() + r["en"][1:]]
        for w in r["hand_en"]: out += ["a " + w] * 4 + ["the " + C.plural(w)]
        for w in r["hand_zh"]: out += [w] * 3
        out += ["a " + t for t, _ in r["tags_en"]] + [t for t, _ in r["tags_zh"]]
    say = " to the left of right next to and on the left on the right above below under over beneath beside on top of background against style in , 3D , flat render design for me please"
    words = [" " + w for w in say.split()] + ["Draw", "A", "An", "Two", "Three", "Four", "draw", "a", "an", "two", "three", "four", "flat", "paint", "photo", " photo", " paint"]
    for text in C.ADJECTIVES + C.COLOURS + C.MEDIA + C.VERBS + C.ASKS + C.TAILS + sum(C.NUMBER_EN.values(), []) + sum((b[0] for b in C.BACKGROUNDS), []):
        words += [text, " " + text.strip(" ,")]
    for text in (C.ADJECTIVES_ZH + C.LEADS_ZH + C.TAILS_ZH + sum(C.NUMBER_ZH.values(), []) + sum((b[1] for b in C.BACKGROUNDS), []) +
                 "在 的左边 的右边 左边 右边 旁边 的上面 的下面 上面 下面 上方 下方 和 与 是 左边是 右边是 上面是 下面是 ， 。 ： 背景 背景上的 背景是 风格 扁平 立体 "
                 "平面 化 一 一个 一只 两个 三个 四个 能 可以 你 吗 请 帮我 照片 不 给我".split()):
        words += [text] * 2
    for units in C.UNITS_ZH.values(): words += list(units)
    words += ["system", "user", "assistant", C.SYSTEM, "\n"] * 3
    out += words * 15
    rng.shuffle(out)
    return out


def main():
    data, reference = sys.argv[1:3]
    ref = json.load(open(reference))
    concepts = C.Concepts(json.load(open(data + "/names.json")))
    base = json.loads(Tokenizer(models.BPE()).to_str())
    base.update({k: ref[k] for k in ("normalizer", "pre_tokenizer", "decoder", "post_processor")})
    tok = Tokenizer.from_str(json.dumps(base))
    tok.train_from_iterator(corpus(concepts, random.Random(0)), trainers.BpeTrainer(
        vocab_size=VOCAB - len(ref["added_tokens"]), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[], show_progress=False))
    j = json.loads(tok.to_str())
    n = len(j["model"]["vocab"])
    j["model"].update({k: ref["model"][k] for k in ("continuing_subword_prefix", "end_of_word_suffix")})
    j["added_tokens"] = [dict(t, id=n + k) for k, t in enumerate(ref["added_tokens"])]
    json.dump(j, open(data + "/tokenizer.json", "w"), ensure_ascii=False)
    tok = Tokenizer.from_file(data + "/tokenizer.json")
    length = lambda texts: sum(len(tok.encode(t).ids) for t in texts) / len(texts)
    print(n + len(ref["added_tokens"]), "entries; tokens a name: English", round(length([C.article(r["en"]) for r in concepts.rows]), 2),
          "Chinese", round(length([r["zh"] for r in concepts.rows]), 2))
    rng = random.Random(1)
    drop = len(tok.encode(C.PREFIX).ids)
    lengths = []
    for k in range(2000):
        text = C.caption(C.make_spec(concepts, rng), concepts, rng)
        assert not re.search(r"(?i)a photo of|draw me|could you paint|请帮我画|的照片|能不能给我画", text), text
        lengths.append(len(tok.encode(C.TEMPLATE.format(text)).ids) - drop)
        if k < 45: print("  ", text)
    print("caption tokens: mean", sum(lengths) / 2000, "99 %:", sorted(lengths)[1980])


if __name__ == "__main__":
    main()
