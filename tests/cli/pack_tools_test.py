#!/usr/bin/env python3
"""fathom quantize and fathom synth as users run them; their GGUFs are read by a reader of its own.

Usage: pack_tools_test.py PROGRAM MODEL [unittest options]
"""
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tools"))
import read_gguf                    # noqa: E402

PROGRAM, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
WAIT_S = 300

DS4_KEYS = """
general.architecture general.name general.alignment deepseek41.config deepseek41.vocab_size deepseek41.hidden_size
deepseek41.moe_intermediate_size deepseek41.num_hidden_layers deepseek41.num_attention_heads
deepseek41.num_key_value_heads deepseek41.head_dim deepseek41.qk_rope_head_dim deepseek41.q_lora_rank
deepseek41.o_lora_rank deepseek41.o_groups deepseek41.n_routed_experts deepseek41.n_shared_experts
deepseek41.num_experts_per_tok deepseek41.max_position_embeddings deepseek41.sliding_window deepseek41.index_n_heads
deepseek41.index_head_dim deepseek41.index_topk deepseek41.candidate_source_layer_id
deepseek41.candidate_topk_blocks deepseek41.candidate_block_size deepseek41.hc_mult deepseek41.hc_sinkhorn_iters
deepseek41.rope_theta deepseek41.compress_rope_theta deepseek41.rms_norm_eps deepseek41.hc_eps
deepseek41.swiglu_limit deepseek41.routed_scaling_factor deepseek41.rope_scaling.factor
deepseek41.rope_scaling.beta_fast deepseek41.rope_scaling.beta_slow
deepseek41.rope_scaling.original_max_position_embeddings deepseek41.scoring_func deepseek41.hidden_act
deepseek41.topk_method deepseek41.norm_topk_prob deepseek41.compress_ratios deepseek41.kv_source_layer_ids
deepseek41.index_source_layer_ids deepseek41.engram.encoding deepseek41.engram.layer_ids deepseek41.engram.rows
deepseek41.engram.primes deepseek41.engram.multipliers deepseek41.engram.token_map
deepseek41.engram.compressed_vocab_size deepseek41.engram.pad_id deepseek41.quantization deepseek41.calibration
tokenizer.ggml.model tokenizer.ggml.pre tokenizer.ggml.tokens tokenizer.ggml.token_type tokenizer.ggml.merges
tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id tokenizer.ggml.add_bos_token tokenizer.ggml.add_eos_token
""".split()


def safetensors(folder):
    """name -> (dtype, shape, bytes)"""
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        length = struct.unpack("<Q", data[:8])[0]
        for tensor, record in json.loads(data[8:8 + length]).items():
            if tensor != "__metadata__":
                begin, end = record["data_offsets"]
                tensors[tensor] = record["dtype"], record["shape"], data[8 + length + begin:8 + length + end]
    return tensors


class PackToolsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.run_program("synth", "--shape", "mini", "--layers", "0..1,4", "--engram", "64", "-o", cls.path("official"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    @classmethod
    def run_program(cls, *words, code=0):
        names = {name: value for name, value in os.environ.items() if not name.startswith("FATHOM")}
        result = subprocess.run([PROGRAM, *words], capture_output=True, timeout=WAIT_S, env=names, check=False)
        error = result.stderr.decode()
        if result.returncode != code:
            raise AssertionError(f"{words}: exit code {result.returncode}: {error}")
        return result.stdout, error

    def refuses(self, *words, says, code=1):
        _, error = self.run_program(*words, code=code)
        self.assertEqual(error.count("\n"), 1, error)
        self.assertIn(says, error)

    def test_q2_is_the_published_mix(self):
        self.run_program("quantize", self.path("official"), "-o", self.path("q2.gguf"), "--recipe", "q2",
                         "--source-url", "https://example.org/model", "--source-revision", "a" * 40)
        gguf = read_gguf.read(self.path("q2.gguf"))
        self.assertEqual(gguf.alignment, 16384)
        self.assertEqual(set(DS4_KEYS) - set(gguf.keys), set())
        self.assertEqual(gguf.keys["general.source.revision"], "a" * 40)
        self.assertEqual(gguf.keys["deepseek41.engram.encoding"], "e4m3_e8m0_32_row33")
        self.assertEqual(len(gguf.keys["tokenizer.ggml.tokens"]), 8192)
        self.assertEqual(gguf.key_types["deepseek41.rope_theta"], 4)
        self.assertEqual(gguf.key_types["deepseek41.rms_norm_eps"], 6)
        types = {name: tensor["type"] for name, tensor in gguf.tensors.items()}
        self.assertEqual(list(types)[:3], ["token_embd.weight", "output_norm.weight", "output.weight"])
        self.assertEqual(list(types)[-1], "blk.1.engram_embd.weight")
        expected = {"token_embd.weight": "F16", "output.weight": "Q8_0", "output_norm.weight": "F32",
                    "blk.2.ffn_gate_exps.weight": "IQ2_XXS", "blk.2.ffn_up_exps.weight": "IQ2_XXS",
                    "blk.2.ffn_down_exps.weight": "Q2_K", "blk.2.attn_q_b.weight": "Q8_0",
                    "blk.2.ffn_down_shexp.weight": "Q8_0", "blk.2.hc_attn_fn.weight": "F16",
                    "blk.2.attn_compressor_kv.weight": "F16", "blk.2.indexer.attn_q_b.weight": "F16",
                    "blk.1.engram_kv.weight": "F16", "blk.1.engram_q_norm.weight": "F32",
                    "blk.2.ffn_gate_inp.weight": "F32", "blk.2.exp_probs_b.bias": "F32",
                    "blk.2.attn_sinks.weight": "F32", "blk.1.engram_embd.weight": "I8"}
        self.assertEqual({name: types[name] for name in expected}, expected)
        self.assertEqual(gguf.tensors["blk.2.ffn_down_exps.weight"]["dims"], [256, 512, 16])
        with open(self.path("q2.gguf.sha256"), encoding="utf-8") as file:
            for line in file:
                checksum, name = line.split()
                self.assertEqual(hashlib.sha256(gguf.data(name)).hexdigest(), checksum, name)
        out, _ = self.run_program("run", "-m", self.path("q2.gguf"), "-n", "8", "--temp", "0", "--ids", "once upon")
        self.assertEqual(len(out.split()), 8)

    def test_mxfp4_is_fp4_in_another_order(self):
        self.run_program("quantize", self.path("official"), "-o", self.path("mx.gguf"), "--recipe", "mxfp4",
                         "--dialect", "llama.cpp")
        gguf, official = read_gguf.read(self.path("mx.gguf")), safetensors(self.path("official"))
        bank = gguf.data("blk.2.ffn_up_exps.weight")
        codes = official["layers.2.ffn.experts.3.w3.weight"][2]
        scales = official["layers.2.ffn.experts.3.w3.scale"][2]
        block_bytes, row_blocks = 17, 512 // 32
        expert = bank[3 * len(bank) // 16:]
        for block in (0, 1, 17, 256 * row_blocks - 1):
            stored = expert[block * block_bytes:(block + 1) * block_bytes]
            pairs = codes[16 * block:16 * block + 16]
            values = [nibble for pair in pairs for nibble in (pair & 15, pair >> 4)]
            self.assertEqual(stored[0], scales[block])
            self.assertEqual([byte & 15 for byte in stored[1:]], values[:16])
            self.assertEqual([byte >> 4 for byte in stored[1:]], values[16:])
        table = gguf.tensors["blk.1.engram_embd.weight"]
        self.assertEqual((table["type"], table["dims"][0]), ("Q8_0", 32))

    def test_engram_rows_keep_their_bytes(self):
        self.run_program("quantize", self.path("official"), "-o", self.path("rows.gguf"), "--recipe", "q8")
        gguf, official = read_gguf.read(self.path("rows.gguf")), safetensors(self.path("official"))
        rows = gguf.data("blk.1.engram_embd.weight")
        values, scales = (official[f"layers.1.engram.embed.{part}"][2] for part in ("weight", "scale"))
        for row in (0, 1, len(scales) - 1):
            self.assertEqual(rows[33 * row:33 * row + 33], values[32 * row:32 * row + 32] + scales[row:row + 1])

    def test_the_model_speaks_alike_after_q8(self):
        self.run_program("quantize", MODEL, "-o", self.path("mini.gguf"), "--recipe", "q8", "-q")
        words = ("-n", "12", "--temp", "0", "Once upon a time")
        before, _ = self.run_program("run", "-m", MODEL, *words)
        after, _ = self.run_program("run", "-m", self.path("mini.gguf"), *words)
        self.assertEqual(before, after)
        _, error = self.run_program("quantize", self.path("mini.gguf"), "-o", self.path("again"))
        self.assertIn("tensors", error)
        after, _ = self.run_program("run", "-m", self.path("again"), *words)
        self.assertEqual(before[:10], after[:10])

    def test_a_killed_run_goes_on_to_the_same_bytes(self):
        whole, killed = self.path("whole.gguf"), self.path("killed.gguf")
        words = ("--shape", "mini", "--format", "q8", "--threads", "1", "--seed", "3")
        self.run_program("synth", *words, "-o", whole)
        quantize = ("quantize", whole, "--recipe", "q4", "--threads", "1", "--checkpoint", "1")
        self.run_program(*quantize, "-o", self.path("reference.gguf"))
        process = subprocess.Popen([PROGRAM, *quantize, "-o", killed], stderr=subprocess.DEVNULL)
        part, deadline = killed + ".part", time.monotonic() + WAIT_S
        while process.poll() is None and time.monotonic() < deadline:
            if os.path.exists(part) and os.path.getsize(part) > 12 << 20:
                break
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertFalse(os.path.exists(killed), "it ended before it could be killed")
        self.run_program("inspect", part, code=1)   # whatever its name, it is no whole pack
        _, error = self.run_program(*quantize, "-o", killed)
        self.assertRegex(error, r"of which [\d.]+ MiB were made by an interrupted run")
        with open(killed, "rb") as one, open(self.path("reference.gguf"), "rb") as other:
            self.assertEqual(hashlib.sha256(one.read()).digest(), hashlib.sha256(other.read()).digest())
        self.assertFalse(os.path.exists(part) or os.path.exists(killed + ".journal"))

    def test_sparse_tables_are_said_and_accepted(self):
        pack = self.path("sparse.gguf")
        _, error = self.run_program("synth", "--shape", "mini", "--layers", "0..1,4", "--format", "mxfp4", "--engram",
                                    "sparse", "-o", pack)
        self.assertIn("holes that read as zeros", error)
        self.assertLess(os.stat(pack).st_blocks * 512 + (5 << 20), os.path.getsize(pack))
        out, _ = self.run_program("inspect", pack)
        self.assertIn("made up: random weights of fathom synth; Engram tables are holes", out.decode())
        self.run_program("run", "-m", pack, "-n", "4", "hello")

    def test_refusals(self):
        official, out = self.path("official"), self.path("no.gguf")
        recipe = self.path("recipe")
        with open(recipe, "w", encoding="utf-8") as file:
            file.write("base q4\n*.wq_a.weight Q9_0\n")
        self.refuses("quantize", official, "-o", out, "--recipe", recipe, says=f"{recipe}:2: unknown type \"Q9_0\"")
        self.refuses("quantize", official, "-o", out, "--recipe", "q3", says="expected one of q2, q4, q8, mxfp4")
        self.refuses("quantize", official, "-o", out, "--dialect", "official", says="expected a folder")
        self.refuses("quantize", official, "-o", out, "--split", "1GB", says="cannot be split")
        self.refuses("quantize", official, "-o", official, says="exists already")
        self.refuses("quantize", official, "-o", out, "--imatrix", recipe, says=recipe)
        self.refuses("quantize", official, "-o", "/proc/no.gguf", says="/proc/no.gguf.journal: cannot create")
        self.refuses("quantize", self.path("nothing"), "-o", out, says="nothing")
        self.refuses("synth", "--layers", "0..99", "-o", out, "--format", "q2", says="within 0..39")
        self.assertFalse([name for name in os.listdir(self.folder) if name.startswith("no.gguf")])

    def test_full_disk(self):
        # A limit on the size of files stands for the disk: it ends writing in the same place.
        command = ["bash", "-c", "ulimit -f 4000; exec \"$@\"", "bash", PROGRAM, "quantize", self.path("official"), "-o",
                   self.path("big.gguf"), "--recipe", "q8"]
        result = subprocess.run(command, capture_output=True, timeout=WAIT_S, check=False)
        self.assertEqual(result.returncode, 1, result.stderr.decode())
        self.assertIn("big.gguf.part: cannot write: File too large", result.stderr.decode())
        self.assertFalse(os.path.exists(self.path("big.gguf")))
        self.run_program("quantize", self.path("official"), "-o", self.path("big.gguf"), "--recipe", "q8")
        read_gguf.read(self.path("big.gguf"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
