#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the lexical guard does behind vectors of two models: fasttext trained on banking77 (Debian's python3-fasttext)
and rolter-sim's embeddings. Prints, by threshold, how many of the must-miss pairs and of the paraphrases in tests/data
pass the vectors, and how many of these pass the guard as well; and the curve of `rolter semantic-calibrate` for pairs of
banking77, where the same intent is an upper bound of the same answer.

    bench/semantic.py --build build --banking77 FILE.csv [--pairs 4000]
"""
import argparse, csv, os, random, re, subprocess, sys, tempfile, time, urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def tsv(name):
    with open(os.path.join(TOP, "tests", "data", name), encoding="utf-8") as f:
        return [line.rstrip("\n").split("\t") for line in f]


def own_pairs():
    return [(a, b, 0) for _, a, b in tsv("semantic_must_miss.tsv")] + [(a, b, 1) for a, b in tsv("semantic_must_hit.tsv")]


def banking_pairs(path, n):
    rows = list(csv.DictReader(open(path, encoding="utf-8")))
    by_intent = {}
    for r in rows:
        by_intent.setdefault(r["category"], []).append(r["text"])
    rng, pairs = random.Random(7), []
    for _ in range(n // 2):
        a, b = rng.sample(by_intent[rng.choice(list(by_intent))], 2)
        pairs.append((a, b, 1))
        x, y = rng.sample(rows, 2)
        pairs.append((x["text"], y["text"], int(x["category"] == y["category"])))
    return pairs


def fasttext_similarity(corpus, pairs):
    import fasttext
    import numpy

    def words(text):
        return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))

    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as f:
        for r in csv.DictReader(open(corpus, encoding="utf-8")):
            f.write(words(r["text"]) + "\n")
        f.flush()
        model = fasttext.train_unsupervised(f.name, model="skipgram", dim=100, epoch=50, minn=2, maxn=5, minCount=1, thread=1)

    def cosine(a, b):
        x, y = model.get_sentence_vector(words(a)), model.get_sentence_vector(words(b))
        n = float(numpy.linalg.norm(x) * numpy.linalg.norm(y))
        return float(x @ y) / n if n else 0.0

    return [(a, b, same, cosine(a, b)) for a, b, same in pairs]


def calibrate(build, pairs, more=(), keep=None):
    """Runs the command; with similarities in the pairs it asks nobody. Returns its text and the pairs as it saw them."""
    with tempfile.TemporaryDirectory() as d:
        path, out = os.path.join(d, "pairs.csv"), os.path.join(d, "out.csv")
        with open(path, "w", newline="", encoding="utf-8") as f:
            w = csv.writer(f)
            w.writerow(["a", "b", "same", "similarity"][: len(pairs[0])])
            w.writerows(pairs)
        text = subprocess.run([os.path.join(build, "rolter"), "semantic-calibrate", "--csv", out, *more, path],
                              check=True, capture_output=True, text=True).stdout
        return text, list(csv.DictReader(open(out, newline="", encoding="utf-8")))


def table(rows):
    print("threshold   must-miss: near  passed   paraphrases: near   kept   share")
    for t in (0.0, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.95):
        near = [r for r in rows if float(r["similarity"]) >= t]
        miss = [r for r in near if r["same"] == "0"]
        hit = [r for r in near if r["same"] == "1"]
        passed, kept = [r for r in miss if not r["guard"]], [r for r in hit if not r["guard"]]
        print("     %.2f             %4d    %4d               %4d   %4d   %3.0f %%" %
              (t, len(miss), len(passed), len(hit), len(kept), 100 * len(kept) / max(1, len(hit))))
    print()


class Sim:
    def __init__(self, build):
        self.dir = tempfile.TemporaryDirectory()
        port = os.path.join(self.dir.name, "port")
        self.process = subprocess.Popen([os.path.join(build, "rolter-sim"), "--listen", "127.0.0.1:0", "--port-file", port],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while not (os.path.exists(port) and open(port).read().strip()):
            if time.monotonic() > end or self.process.poll() is not None:
                sys.exit("rolter-sim does not start")
            time.sleep(0.01)
        self.url = "http://127.0.0.1:" + open(port).read().strip()

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.dir.cleanup()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--banking77", required=True)
    p.add_argument("--pairs", type=int, default=4000)
    o = p.parse_args()
    own, banking = own_pairs(), banking_pairs(o.banking77, o.pairs)
    print("== fasttext: own pairs")
    table(calibrate(o.build, fasttext_similarity(o.banking77, own))[1])
    print("== fasttext: pairs of banking77")
    print(calibrate(o.build, fasttext_similarity(o.banking77, banking))[0])
    sim = Sim(o.build)
    try:
        more = ["--url", sim.url, "--model", "m"]
        print("== rolter-sim: own pairs")
        table(calibrate(o.build, own, more)[1])
        print("== rolter-sim: pairs of banking77")
        print(calibrate(o.build, banking, more)[0])
    finally:
        sim.close()


if __name__ == "__main__":
    main()
