#!/bin/bash
# Makes packs of the embedded model in every recipe, evaluates them and writes docs/benchmarks/packs.md.
# Usage: tools/pack_table.sh [PROGRAM] [OUTPUT]     PROGRAM: default build/bin/fathom
# Takes some minutes and 400 MB in $TMPDIR.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=$(realpath "${1:-$root/build/bin/fathom}")
output=${2:-$root/docs/benchmarks/packs.md}
model=$root/models/mini
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The text: 21 validation documents that the model has not learnt from.
python3 - "$root/tests/data/mini/golden.safetensors" > "$work/text.ids" <<'PYTHON'
import json, struct, sys
with open(sys.argv[1], "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    start = file.tell()
    begin, end = header["doc_ids"]["data_offsets"]
    file.seek(start + begin)
    print(*struct.unpack(f"<{(end - begin) // 4}i", file.read(end - begin)))
PYTHON

# Importance comes from text that the model writes itself, so that nothing of the above is known to it.
for prompt in "Once upon a time" "옛날 옛적에" "The old fisherman" "Il était une fois" "C'era una volta" "int main" \
              "One day, Tom and Mia" "어느 날" "The king said" "A letter to a friend:" "She opened the door and" \
              "def count"; do
  ids=$("$program" tokenize -m "$model" --bos --ids-only "$prompt")
  for seed in 1 2 3; do
    echo "$ids $("$program" run -m "$model" "$prompt" -n 500 --seed $seed --ids 2> /dev/null | tr '\n' ' ')"
  done
done > "$work/calibration.ids"
"$program" imatrix -m "$model" --tokens "$work/calibration.ids" -o "$work/importance.gguf" 2> /dev/null

for numerics in official exact; do
  "$program" eval -m "$model" --tokens "$work/text.ids" --numerics $numerics \
    --save-reference "$work/$numerics.reference" > /dev/null 2>&1
done

# measure NAME PACK: its row's numbers -> NAME.official.json, NAME.exact.json and NAME.compare.json
measure() {
  for numerics in official exact; do
    "$program" eval -m "$2" --tokens "$work/text.ids" --numerics $numerics \
      --reference "$work/$numerics.reference" --json "$work/$1.$numerics.json" > /dev/null 2>&1
  done
  "$program" compare "$model" "$2" --json > "$work/$1.compare.json" 2> /dev/null
}
measure official "$model"
for recipe in lossless mxfp4 q8 q4 q2; do
  for importance in "" --imatrix; do
    if [[ -n $importance && $recipe != q[24] ]]; then continue; fi
    name=$recipe${importance:+-imatrix}
    "$program" quantize "$model" -o "$work/pack.gguf" --recipe $recipe ${importance:+--imatrix "$work/importance.gguf"} \
      -q > /dev/null 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
    measure "$name" "$work/pack.gguf"
    rm -f "$work"/pack.gguf*
  done
done

mkdir -p "$(dirname "$output")"
python3 - "$work" "$output" <<'PYTHON'
import json, sys
work, output = sys.argv[1:]
NAMES = {"official": "the release's format", "lossless": "GGUF, `lossless`", "mxfp4": "GGUF, `mxfp4`",
         "q8": "GGUF, `q8`", "q4": "GGUF, `q4`", "q4-imatrix": "GGUF, `q4`, importance",
         "q2": "GGUF, `q2`", "q2-imatrix": "GGUF, `q2`, importance"}
rows = []
for name, title in NAMES.items():
    as_run, exact = (json.load(open(f"{work}/{name}.{numerics}.json")) for numerics in ("official", "exact"))
    tensors = [t for t in json.load(open(f"{work}/{name}.compare.json"))["tensors"]
               if not t["name"].startswith("mtp.") and not t["name"].endswith(".engram.embed.weight")]
    experts = [t for t in tensors if ".ffn.experts." in t["name"]]
    bits = lambda ts: 8 * sum(t["bytes_b"] for t in ts) / sum(t["error"]["values"] for t in ts)
    show = lambda quality, key, digits, scale=1: "{:.{d}f} ± {:.{d}f}".format(
        scale * quality[key]["value"], scale * quality[key]["error"], d=digits)
    rows.append(f"| {title} | {bits(tensors):.2f} | {bits(experts):.2f} | {sum(t['bytes_b'] for t in tensors) / 1e6:.1f}"
                f" | {show(as_run, 'perplexity', 2)} | {show(as_run, 'kl_divergence', 4)}"
                f" | {show(as_run, 'same_top', 1, 100)} | {show(exact, 'nll_difference', 4)}"
                f" | {show(exact, 'kl_divergence', 4)} | {exact['kl_p99']:.3f} | {show(exact, 'same_top', 1, 100)} |")
text = json.load(open(f"{work}/official.official.json"))
calibration = len(open(f"{work}/calibration.ids").read().split())
with open(output, "w", encoding="utf-8") as file:
    file.write(f"""# Packs of the embedded model

Made by `tools/pack_table.sh`; what the numbers mean is in [eval.md](../eval.md). The text is that of the golden file:
{text['tokens']} predicted tokens of {text['windows']} validation documents in English, Korean, French, Italian, C and chat. The reference is
the pack in the release's format. Errors are standard errors over tokens. Importance comes from {calibration} tokens that the
model wrote itself.

| pack | bits a weight | of experts | MB | perplexity | KL | same top, % | exact: nats, change | KL | its 99% | same top, % |
|---|---|---|---|---|---|---|---|---|---|---|
""" + "\n".join(rows) + """

Bits and MB count what every token may touch: embedding, head and all layers, without rows of Engram tables, draft stages
and what a container adds.

The first three numbers are of packs as they run, in the official arithmetic. It rounds the inputs of matrices that are
FP8 or FP4 in the pack; a GGUF keeps most of those as Q8_0, whose inputs are not rounded. That alone gives a KL
divergence of about 0.006, the noise of the release's own arithmetic: differences of that size say nothing about the
weights, and a pack may even come out better than the reference. The columns after `exact` repeat the comparison without any rounding of
inputs, in the reference too. What is left is the error of the weights.

Matrices whose rows are no whole number of 256 columns fall back to larger types, which is why `q2` has so many bits
outside of the experts. Importance changes little here. The mean squares that go into gates and ups differ little from
column to column (their standard deviation is 0.13 to 0.5 of their mean; in front of downs 0.9 to 1.6), and the model's
own writing is not the text it is judged by.
""")
PYTHON
cat "$output"
