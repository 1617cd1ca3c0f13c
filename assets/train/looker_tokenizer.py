"""The looker's tokenizer: byte-level BPE of its own questions and answers, with Qwen's rules and special tokens.

    python looker_tokenizer.py DATA TOKENIZER_JSON OUT_JSON         # TOKENIZER_JSON: the painter's, for its rules
"""
import json
import random
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import captions as C
import looker_talk as L
from looker_scenes import draw_scene

VOCAB = 3072


def corpus(concepts, rng):
    talk, out = L.Talk(concepts), []
    for i, r in enumerate(concepts.rows):
        for n, times in ((1, 24), (2, 3), (3, 3), (4, 3)):
            out += [f"This is {talk.en(i, n)}.", f"See {talk.en(i, n)} on"] * times
        out += [r["zh"]] * 50
        for lang in ("en", "zh"):
            for w in r["hand_" + lang]: out += ["a " + w if lang == "en" else w] * 4
    for _ in range(20000):
        for question, answer in talk.branch(draw_scene(concepts, rng), rng):
            if not any("一" <= c <= "鿿" for c in answer): out += [question, answer]
    # Chinese questions and answers are written around names: only their fixed words, so that no merge crosses into a name.
    fixed = [*L.DESCRIBE_ZH, *L.WHAT_ZH, L.SURE["zh"], L.WHO["zh"][1], L.BLIND["zh"], *sum(L.SIDES_ZH.values(), []), *(p[1] for p in L.PLACES.values()),
             "这是一个", "这是一只", "我看到一个", "我看到两个", "我看到三个", "我看到四个", "我看到一只", "有一个", "有两个", "有三个", "有四个", "有，我看到一个", "没有，我看到一个",
             "是的，我看到一个", "不是，我看到一个", "图里有", "图片里有", "有没有", "吗？", "在哪里？", "的左边", "的右边", "的上面", "的下面", "和一个", "，3D风格。", "，扁平风格。",
             "背景上，一个", "背景上，两个", "背景上，三个", "背景上，四个", "背景是什么颜色？", "这是3D风格。", "这是扁平风格。", "一共有几个", "有几个", "个物体。"]
    for names in C.BACKGROUNDS: fixed += [f"背景是{n}" for n in names[1]] + [n + "背景上" for n in names[1]]
    out += fixed * 40 + ["system", "user", "assistant", "\n", "You are a helpful assistant."] * 200
    rng.shuffle(out)
    return out


def main():
    data, rules, target = sys.argv[1:4]
    ref = json.load(open(rules))
    concepts = C.Concepts(json.load(open(data + "/names.json")))
    special = [t for t in ref["added_tokens"] if t["special"]]
    base = json.loads(Tokenizer(models.BPE()).to_str())
    base.update({k: ref[k] for k in ("normalizer", "pre_tokenizer", "decoder", "post_processor")})
    tok = Tokenizer.from_str(json.dumps(base))
    tok.train_from_iterator(corpus(concepts, random.Random(0)), trainers.BpeTrainer(
        vocab_size=VOCAB - len(special), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), special_tokens=[], show_progress=False))
    j = json.loads(tok.to_str())
    n = len(j["model"]["vocab"])
    j["model"].update({k: ref["model"][k] for k in ("continuing_subword_prefix", "end_of_word_suffix")})
    j["added_tokens"] = [dict(t, id=n + k) for k, t in enumerate(special)]
    json.dump(j, open(target, "w"), ensure_ascii=False, separators=(",", ":"))
    tok = Tokenizer.from_file(target)
    length = lambda texts: round(sum(len(tok.encode(t).ids) for t in texts) / len(texts), 2)
    print(n + len(special), "entries; tokens a name: English", length([C.article(r["en"]) for r in concepts.rows]), "Chinese", length([r["zh"] for r in concepts.rows]))


if __name__ == "__main__":
    main()
