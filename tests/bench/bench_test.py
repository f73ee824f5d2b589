#!/usr/bin/env python3
"""Runs `fathom bench` as a user would, against the embedded model and servers that only pretend to have one.
usage: bench_test.py FATHOM"""
import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

FATHOM = None
HERE = os.path.dirname(os.path.abspath(__file__))
WAIT_S = 900    # generous: sanitizer builds on a busy machine

# 512 tokens alone; 1024 and 2048 in a series.
SMALL = ["--steps", "8K,16K,32K", "--scale", "1/16", "--gen", "8", "--threads", "2"]


def bench(*words, expect=0):
    process = subprocess.run([FATHOM, "bench", *words], capture_output=True, text=True, timeout=WAIT_S)
    if process.returncode != expect:
        raise AssertionError(f"bench {words}: expected exit code {expect}, found {process.returncode}\n"
                             f"{process.stdout}\n{process.stderr}")
    return process.stdout + process.stderr


def open_text(path):
    with open(path) as file:
        return file.read()


class BenchTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def json_of(self, name):
        with open(self.path(name)) as file:
            return json.load(file)

    def protocol(self, name, *options, expect=0):
        printed = bench("protocol", "-o", self.path(name), "--no-pack-hash", *options, expect=expect)
        path = os.path.join(self.path(name), "result.json")
        if not os.path.exists(path):
            return None, printed
        with open(path) as file:
            return json.load(file), printed

    def fake(self, name, dialect, *fault, runs="1", expect=0, options=(), steps=("--scale", "1/256")):
        """A campaign against a server that pretends; -> result, what it printed, the server's log"""
        log = self.path(f"{name}.log")
        command = f"exec python3 {HERE}/fake_server.py {dialect} --port {{port}} --log {log} {' '.join(fault)}"
        result, printed = self.protocol(name, "--target", "http://127.0.0.1:1", "--driver", dialect, "--server-command",
                                        command, "--sources", "novel", "--runs", runs, *steps,
                                        *(() if "--gen" in (*steps, *options) else ("--gen", "16")), *options, expect=expect)
        if not os.path.exists(log):
            return result, printed, []
        with open(log) as lines:
            return result, printed, [json.loads(line) for line in lines]

    # Our own engine

    def test_the_engine_from_the_inside_and_over_http_say_the_same(self):
        inside, printed = self.protocol("inside", "--runs", "2", *SMALL)
        self.assertIn("all runs of a source gave the same tokens", printed)
        self.assertEqual(inside["variant"], "session")
        self.assertEqual(len(inside["runs"]), 4)
        for run in inside["runs"]:
            self.assertEqual([stage["name"] for stage in run["stages"]], ["512", "1K", "2K"])
            self.assertEqual([stage["evaluated_tokens"] for stage in run["stages"]], [512, 1024, 1025])
            for stage in run["stages"]:
                self.assertEqual(stage["status"], "ok")
                self.assertEqual(len(stage["output_ids"]), 8)
                self.assertGreater(stage["process"]["resident_peak_bytes"], 1 << 20)
                self.assertIn("generation_f1_tokens_per_s", stage)
        served, printed = self.protocol("served", "--runs", "1", "--target", "serve", *SMALL)
        self.assertEqual(served["variant"], "http_ids_exact")
        for run in served["runs"]:
            self.assertEqual([stage["evaluated_tokens"] for stage in run["stages"]], [512, 1024, 1025])
        hashes = lambda result: {(run["source"], stage["name"]): stage["output_sha256"]
                                 for run in result["runs"] for stage in run["stages"]}
        self.assertEqual(hashes(inside), hashes(served))
        self.assertEqual(len(set(hashes(inside).values())), 6)
        with open(os.path.join(self.path("inside"), "result.csv")) as file:
            rows = list(csv.reader(file))
        self.assertEqual(len(rows), 1 + 4 * 3)

    def test_quick_figures(self):
        self.assertRegex(bench("decode", "--lengths", "64,128", "--gen", "8", "--repetitions", "2"),
                         r"(?m)^ +128 +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +2$")
        self.assertRegex(bench("prefill", "--lengths", "64,128", "--repetitions", "2"), r"(?m)^ +64 +\d+\.\d\d .* 2$")
        self.assertRegex(bench("load", "--repetitions", "2"), r"(?m)^ready after, s +\d")
        printed = bench("serve", "--users", "3", "--requests", "2", "--prompt", "64", "--gen", "8", "--rate", "20",
                        "--json", self.path("serve.json"))
        self.assertIn("3 users, 6 requests, 0 failed", printed)
        figures = self.json_of("serve.json")["figures"]
        self.assertLessEqual(figures["fairness"], 1 + 1e-9)
        self.assertAlmostEqual(figures["output_tokens_per_s"] * figures["duration_s"], 3 * 2 * 8, places=6)

    # Others' servers

    def errors_against_the_log(self, name):
        """Largest relative errors of generation, gaps and first token of two stages against the server's own log."""
        result, _, log = self.fake(name, "llama_cpp", "--prefill-us", "2000", "--token-us", "10000",
                                   steps=("--steps", "32K,64K", "--alone", "", "--scale", "1/128", "--gen", "32"))
        sent = [line["ns"] for line in log if line["what"] == "tokens"]
        stages = result["runs"][0]["stages"]
        self.assertEqual([stage["evaluated_tokens"] for stage in stages], [256, 257])
        errors = []
        for number, stage in enumerate(stages):
            begin = len(sent) - 32 * (len(stages) - number)
            tokens = sent[begin:begin + 32]
            received = max(line["ns"] for line in log if line["what"] == "request" and line["ns"] < tokens[0])
            gaps = [(b - a) * 1e-6 for a, b in zip(tokens[3:], tokens[4:])]
            errors += [abs(measured / real - 1) for measured, real in (
                (stage["generation_f2_tokens_per_s"], 31e9 / (tokens[-1] - tokens[0])),
                (stage["gap_p50_ms"], statistics.median(gaps)),
                (stage["first_token_s"], (tokens[0] - received) * 1e-9))]
        return max(errors)

    def test_known_delays_are_recovered(self):
        # The log says when the server really did what. Only this process may have been kept waiting then, by a
        # busy machine: one of some campaigns is free of that.
        errors = []
        while len(errors) < 8 and min(errors, default=1) > 0.02:
            errors.append(self.errors_against_the_log(f"delays{len(errors)}"))
        self.assertLess(min(errors), 0.02, errors)

    def test_variants_are_found_out(self):
        for dialect, cache, variant, evaluated in (
                ("llama_cpp", "exact", "http_ids_exact", 129),
                ("vllm", "reprocessed", "http_ids_reprocessed", 128 + 16 + 1),
                ("sglang", "none", "http_ids_cold", 3 * 128 + 2 * 16),
                ("fathom", "exact", "http_ids_exact", 129)):
            with self.subTest(dialect):
                result, _, _ = self.fake(f"{dialect}-{cache}", dialect, "--cache", cache)
                self.assertEqual(result["variant"], variant)
                self.assertEqual(result["runs"][0]["stages"][3]["evaluated_tokens"], evaluated)
        for dialect in ("ds4", "mlx_serve", "omlx"):
            with self.subTest(dialect):
                result, _, _ = self.fake(dialect, dialect)
                self.assertTrue(result["variant"].startswith("http_"), result["variant"])
                self.assertEqual(result["runs"][0]["stages"][4]["status"], "ok")

    def test_faults_end_in_marked_stages(self):
        for fault, says in (("--die-after 20", "stream cut"), ("--cut-after 20", "stream cut"), ("--wrong-ids", "wrong ids"),
                            ("--status 500", "500"), ("--die-at-start", "ended with")):
            with self.subTest(fault):
                result, printed, _ = self.fake(fault.split()[0], "llama_cpp", fault, expect=1,
                                               options=("--attempts", "1", "--time-limit", "20", "--gen", "32"))
                stages = result["runs"][0]["stages"]
                self.assertTrue(result["runs"][0]["is_excluded"])
                self.assertIn("no run succeeded", printed)
                self.assertIn(says, printed)
                self.assertIn(says, result["runs"][0].get("error", "") + "".join(stage["error"] for stage in stages))
                self.assertIn(stages[-1]["status"], ("failed", "not_run"))
                for stage in stages:
                    if stage["status"] != "ok":
                        self.assertNotIn("prefill_tokens_per_s", stage)
                        self.assertNotIn("generation_f2_tokens_per_s", stage)

    def test_a_hanging_server_meets_the_time_limit(self):
        result, printed, _ = self.fake("hang", "llama_cpp", "--hang-after", "20", expect=1,
                                       options=("--attempts", "1", "--time-limit", "3", "--gen", "32"))
        self.assertIn("failed", printed)
        self.assertTrue(result["runs"][0]["is_excluded"])

    def test_an_interrupted_campaign_goes_on(self):
        words = [FATHOM, "bench", "protocol", "-o", self.path("long"), "--no-pack-hash", "--runs", "3", "--sources",
                 "novel,code", *SMALL]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        runs = os.path.join(self.path("long"), "runs")
        deadline = time.monotonic() + WAIT_S
        while not (os.path.isdir(runs) and len(os.listdir(runs)) >= 1) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=WAIT_S)
        self.assertEqual(process.returncode, 130, printed)
        kept = {name: os.stat(os.path.join(runs, name)).st_mtime_ns for name in os.listdir(runs)}
        self.assertLess(len(kept), 6)
        self.assertFalse(os.path.exists(os.path.join(self.path("long"), "result.json")))
        result, _ = self.protocol("long", "--runs", "3", "--sources", "novel,code", *SMALL)
        self.assertEqual(len(result["runs"]), 6)
        for name, changed in kept.items():
            self.assertEqual(os.stat(os.path.join(runs, name)).st_mtime_ns, changed)
        _, printed = self.protocol("long", "--runs", "3", "--sources", "novel", *SMALL, expect=1)
        self.assertIn("of another campaign: sources", printed)

    def test_ctrl_c_does_not_wait_for_a_server(self):
        log = self.path("hang.log")
        process = subprocess.Popen([FATHOM, "bench", "protocol", "-o", self.path("hang"), "--no-pack-hash", "--target",
                                    "http://127.0.0.1:1", "--driver", "llama_cpp", "--sources", "novel", "--scale", "1/256",
                                    "--gen", "32", "--server-command", f"exec python3 {HERE}/fake_server.py llama_cpp "
                                    f"--port {{port}} --log {log} --hang-after 20"], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        deadline = time.monotonic() + WAIT_S
        while not (os.path.exists(log) and '"hang"' in open_text(log)) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=WAIT_S)    # the stage itself would take hours
        self.assertEqual(process.returncode, 130, printed)
        self.assertEqual(subprocess.run(["pgrep", "-f", log], capture_output=True, text=True).stdout, "")

    def test_nothing_is_left_running(self):
        self.fake("done", "vllm")
        left = subprocess.run(["pgrep", "-f", self.path("done.log")], capture_output=True, text=True).stdout
        self.assertEqual(left, "")

    # Bad input

    def test_wrong_command_lines_say_what_is_wrong(self):
        for words, says in ((["protocol", "-o", "x", "--target", "somewhere"], "expected local, serve or a URL"),
                            (["protocol", "-o", "x", "--scale", "0"], "--scale"),
                            (["protocol", "-o", "x", "--steps", "8K,x"], "--steps"),
                            (["protocol", "-o", "x", "--alone", "7K"], "7168 is none of --steps"),
                            (["protocol", "-o", "x", "--driver", "vllm"], "for a --target that is a URL"),
                            (["protocol"], "--output is required"),
                            (["report"], "expected result files"),
                            (["nothing"], "nothing")):
            with self.subTest(words):
                self.assertIn(says, bench(*words, expect=2))

    def test_missing_things_say_what_is_missing(self):
        for words, says in ((["protocol", "-o", self.path("a"), "--sources", "poems"], "expected novel, code, korean"),
                            (["protocol", "-o", self.path("b"), "--target", "http://127.0.0.1:1", "--driver", "nothing"],
                             "nothing"),
                            (["protocol", "-o", self.path("c"), "--scale", "100"], "expected at least"),
                            (["protocol", "-o", "/proc/x", *SMALL], "/proc/x"),
                            (["report", self.path("none.json")], "none.json")):
            with self.subTest(words):
                self.assertIn(says, bench(*words, expect=1))

    def test_results_that_are_none_are_refused_with_their_name(self):
        for text in ("", "{", "[]", '{"format": "fathom-bench", "version": 99}', '{"format": "other"}', "[" * 100_000):
            with open(self.path("bad.json"), "w") as file:
                file.write(text)
            self.assertIn("bad.json", bench("report", self.path("bad.json"), expect=1))


if __name__ == "__main__":
    FATHOM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
