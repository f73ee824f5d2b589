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
seed=0
for prompt in "Once upon a time" "옛날 옛적에" "The old fisherman" "Il était une fois" "C'era una volta" "int main" \
              "One day, Tom and Mia" "어느 날" "The king said" "A letter to a friend:" "She opened the door and" \
              "def count"; do
  seed=$((seed + 1))
  ids=$("$program" tokenize -m "$model" --bos --ids-only "$prompt")
  echo "$ids $("$program" run -m "$model" "$prompt" -n 500 --seed $seed --ids 2> /dev/null | tr '\n' ' ')"
done > "$work/calibration.ids"
"$program" imatrix -m "$model" --tokens "$work/calibration.ids" -o "$work/importance.gguf" 2> /dev/null

"$program" eval -m "$model" --tokens "$work/text.ids" --save-reference "$work/reference" \
  --json "$work/official.json" > /dev/null 2>&1

# measure NAME PACK: its row's numbers -> NAME.json and NAME.compare.json
measure() {
  "$program" eval -m "$2" --tokens "$work/text.ids" --reference "$work/reference" --json "$work/$1.json" \
    > /dev/null 2>&1
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
    quality = json.load(open(f"{work}/{name}.json"))
    tensors = [t for t in json.load(open(f"{work}/{name}.compare.json"))["tensors"]
               if not t["name"].startswith("mtp.") and "sampled_rows" not in t and ".engram.embed" not in t["name"]]
    experts = [t for t in tensors if ".experts." in t["name"]]
    bits = lambda ts: 8 * sum(t["bytes_b"] for t in ts) / sum(t["error"]["values"] for t in ts)
    e = lambda key, scale=1, digits=4: "{:.{d}f} ± {:.{d}f}".format(
        scale * quality[key]["value"], scale * quality[key]["error"], d=digits)
    rows.append(f"| {title} | {bits(tensors):.2f} | {bits(experts):.2f} | {sum(t['bytes_b'] for t in tensors) / 1e6:.1f}"
                f" | {e('perplexity', 1, 2)} | {e('nll_difference')} | {e('kl_divergence')} | {quality['kl_p99']:.3f}"
                f" | {e('same_top', 100, 1)} |")
official = json.load(open(f"{work}/official.json"))
with open(output, "w", encoding="utf-8") as file:
    file.write(f"""# Packs of the embedded model

Made by `tools/pack_table.sh`; what the numbers mean is in [eval.md](../eval.md). The text is that of the golden file: \
{official['tokens']}
predicted tokens of {official['windows']} validation documents in English, Korean, French, Italian and C. The reference is the pack in
the release's format. Errors are standard errors over tokens. Importance was collected from 12 texts that the model
wrote itself.

| pack | bits a weight | of experts | MB | perplexity | nats, change | KL divergence | its 99% | same top, % |
|---|---|---|---|---|---|---|---|---|
""" + "\n".join(rows) + """

Bits and MB count what a token can touch but for rows of Engram tables, which no recipe here changes the meaning of:
embedding, head and all layers. A small model suffers more from few bits than the release does: its matrices have few
columns, so that a bad block weighs more, and rows that are no whole number of 256 columns fall back to larger types.
""")
PYTHON
cat "$output"
