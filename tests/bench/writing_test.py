#!/usr/bin/env python3
"""Runs `fathom bench writing`, `blind` and `unblind` as a user would, with the embedded model.
usage: writing_test.py FATHOM"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

FATHOM = None
WAIT_S = 900    # generous: sanitizer builds on a busy machine


def bench(*words, expect=0):
    process = subprocess.run([FATHOM, "bench", *words], capture_output=True, text=True, timeout=WAIT_S)
    if process.returncode != expect:
        raise AssertionError(f"bench {words}: expected exit code {expect}, found {process.returncode}\n"
                             f"{process.stdout}\n{process.stderr}")
    return process.stdout + process.stderr


class WritingTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, *options, expect=0):
        printed = bench("writing", "-o", self.path(name), "-n", "200", "--threads", "1", *options, expect=expect)
        return self.record(name), printed

    def record(self, name):
        with open(os.path.join(self.path(name), "writing.json")) as file:
            return json.load(file)

    def test_texts_are_the_same_again_and_a_finished_campaign_starts_nothing(self):
        record, printed = self.write("first", "--brief", "ko", "--seeds", "42,43")
        self.assertEqual([(text["brief"], text["seed"], text["status"]) for text in record["texts"]],
                         [("ko", 42, "done"), ("ko", 43, "done")])
        self.assertIn("| ko | 2 | 0 |", printed)
        for text in record["texts"]:
            self.assertTrue(text["fresh_process"])
            self.assertEqual(text["tokens_from"], "ids")
            self.assertEqual(text["loop"]["looked_for_in"], "ids")
            self.assertEqual(len(text["examination"]["facts"]), 6)
        again, _ = self.write("second", "--brief", "ko", "--seeds", "42,43")
        self.assertEqual([text["sha256"] for text in record["texts"]], [text["sha256"] for text in again["texts"]])
        resumed, _ = self.write("first", "--brief", "ko", "--seeds", "42,43")
        self.assertEqual(resumed, record)

    def test_another_condition_is_refused_and_named(self):
        self.write("here", "--brief", "en", "--seeds", "1")
        _, printed = self.write("here", "--brief", "en", "--seeds", "1", "--temp", "0.7", expect=1)
        self.assertIn("holds texts of other settings: temperature: 0.5 there, 0.7 now", printed)
        _, printed = self.write("here", "--brief", "en", "--seeds", "1", "--ctx", "8K", expect=1)
        self.assertIn("holds texts of other settings: target: ", printed)

    def test_a_target_that_does_not_start_fails_and_leaves_a_record(self):
        record, printed = self.write("none", "--brief", "ko", "-m", self.path("no_pack"), expect=1)
        self.assertIn("did not start 2 times in a row", printed)
        self.assertEqual([text["status"] for text in record["texts"]], ["failed", "failed", "not_run"])
        self.assertIn("no_pack", record["texts"][0]["error"])

    def test_briefs_of_ones_own(self):
        brief = {"name": "mine", "language": "English", "text": "Write.",
                 "length": {"unit": "words", "low": 0, "high": 1000}, "facts": []}
        with open(self.path("mine.json"), "w") as file:
            json.dump(brief, file)
        record, _ = self.write("mine", "--brief", self.path("mine.json"), "--seeds", "7")
        self.assertEqual(record["settings"]["briefs"], [brief])
        self.assertTrue(record["texts"][0]["examination"]["within_goal"])
        printed = bench("writing", "-o", self.path("x"), "--brief", "klingon", expect=1)
        self.assertIn("klingon: expected a file or one of ko, en, found neither", printed)

    def test_blind_and_back(self):
        self.write("cool", "--seeds", "1,2")
        self.write("hot", "--seeds", "1,2", "--temp", "1.5")
        printed = bench("blind", f"A={self.path('cool')}", self.path("hot") + "/", "-o", self.path("judge"), "--key",
                        self.path("key.json"))
        self.assertIn("8 texts", printed)
        with open(self.path("key.json")) as file:
            key = json.load(file)
        self.assertEqual(key["engines"], ["A", "hot"])
        sheets = []
        for judge, shift in (("Kim", 0), ("Lee", 1)):
            with open(os.path.join(self.path("judge"), "answer_sheet.json")) as file:
                sheet = json.load(file)
            sheet["judge"] = judge
            for entry, truth in zip(sheet["texts"], key["texts"]):
                for item in [name for name, value in entry.items() if value is None]:
                    entry[item] = (3 if truth["engine"] == "A" else 1) - shift
                with open(os.path.join(self.path("judge"), entry["text"] + ".txt")) as file:
                    entry["last_20_characters"] = file.read().strip()[-20:]
            if judge == "Lee":
                sheet["texts"][0]["depth"] = 5
            sheets.append(self.path(judge + ".json"))
            with open(sheets[-1], "w") as file:
                json.dump(sheet, file)
        printed = bench("unblind", "--key", self.path("key.json"), *sheets, "--json", self.path("scores.json"))
        self.assertIn("depth: expected a whole number from 0 to 4, found 5 (judge Lee, text_01)", printed)
        with open(self.path("scores.json")) as file:
            scores = json.load(file)
        self.assertEqual(sum(engine["judgments"] for engine in scores["engines"]), 15)
        self.assertGreater(scores["engines"][0]["total"]["mean"], scores["engines"][1]["total"]["mean"])
        self.assertEqual(scores["agreement"]["total"]["texts"], 7)


if __name__ == "__main__":
    FATHOM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
