#!/usr/bin/env python3
"""Runs `fathom serve` with the embedded model and asks it what its users would. usage: serve_test.py FATHOM"""
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

FATHOM = None
WAIT_S = 600    # generous: sanitizer builds on a busy machine


class Server:
    """A server of its own on a free port; ends, and in good order, with the `with` block."""

    def __init__(self, *options, context="1024", parallel="4"):
        self.options = ["--ctx", context, "--parallel", parallel, *options]

    def __enter__(self):
        # A file, not a pipe that nobody empties: a sanitizer's report is long.
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([FATHOM, "serve", "--port", "0", *self.options], stdout=subprocess.PIPE,
                                        stderr=self.said, text=True)
        line = self.process.stdout.readline()
        if " is served at " not in line:
            raise RuntimeError(f"the server did not start: {line!r} {self.errors()}")
        self.port = int(line.split("http://127.0.0.1:")[1].split()[0])
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            # What a sanitizer found is told by the exit status.
            status = self.process.wait(WAIT_S)
            if status != 0:
                raise RuntimeError(f"the server ended with status {status}: {self.errors()}")
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.said.close()

    def errors(self):
        self.said.seek(0)
        return self.said.read()

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        data = None if body is None else body if isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response.status, text

    def post(self, path, body):
        status, text = self.request("POST", path, body)
        if status != 200:
            raise AssertionError(f"{path}: {status} {text.decode()}")
        return json.loads(text)

    def complete(self, **body):
        return self.post("/v1/completions", {"return_token_ids": True, **body})

    def events(self, path, body):
        """Data of the stream's events, decoded from single bytes; [DONE] is checked and left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        lines = response.read().decode().split("\n")
        connection.close()
        data = [line[6:] for line in lines if line.startswith("data: ")]
        assert data[-1] == "[DONE]", data[-1]
        return [json.loads(item) for item in data[:-1]]


def ids_of(answer, choice=0):
    return answer["choices"][choice]["token_ids"]


def random_prompt(rng, length):
    return [0] + [rng.randrange(3, 8000) for _ in range(length - 1)]


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.context = Server()
        cls.server = cls.context.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.context.__exit__()

    def test_writes_what_the_command_line_writes(self):
        told = subprocess.run([FATHOM, "run", "-n", "40", "--temp", "0", "Once upon a time"], capture_output=True,
                              text=True, check=True).stdout
        answer = self.server.complete(prompt="Once upon a time", max_tokens=40, temperature=0)
        self.assertIn(answer["choices"][0]["text"].strip()[:100], told)

    def test_continues_exactly_over_generated_tokens(self):
        prompt = random_prompt(random.Random(1), 300)
        first = self.server.complete(prompt=prompt, max_tokens=64, temperature=0, ignore_eos=True)
        self.assertEqual(len(ids_of(first)), 64)
        added = random_prompt(random.Random(2), 100)
        longer = prompt + ids_of(first) + added
        second = self.server.complete(prompt=longer, max_tokens=16, temperature=0, ignore_eos=True)
        evaluated = second["usage"]["prompt_tokens"] - second["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(evaluated, len(added) + 1)
        cold = self.server.complete(prompt=longer, max_tokens=16, temperature=0, ignore_eos=True, cache_prompt=False)
        self.assertEqual(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(ids_of(cold), ids_of(second))
        # The same again: nothing or one token to evaluate, and the same text.
        again = self.server.complete(prompt=longer, max_tokens=16, temperature=0, ignore_eos=True)
        self.assertGreaterEqual(again["usage"]["prompt_tokens_details"]["cached_tokens"], len(longer) - 1)
        self.assertEqual(ids_of(again), ids_of(second))

    def test_ten_extending_prompts_evaluate_only_what_is_new(self):
        prompt = random_prompt(random.Random(3), 50)
        for _ in range(10):
            answer = self.server.complete(prompt=prompt, max_tokens=8, temperature=0, ignore_eos=True)
            usage = answer["usage"]
            if len(prompt) > 50:
                self.assertEqual(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"], 31)
            prompt = prompt + ids_of(answer) + random_prompt(random.Random(len(prompt)), 30)

    def test_many_at_once_get_what_they_would_get_alone(self):
        rng = random.Random(4)
        requests = []
        for number in range(16):
            requests.append({"prompt": random_prompt(rng, rng.randrange(5, 400)), "max_tokens": rng.randrange(1, 60),
                             "seed": number, "temperature": rng.choice([0, 0.7, 1.3]), "ignore_eos": True,
                             "top_p": rng.choice([1, 0.9]), "frequency_penalty": rng.choice([0, 0.5]),
                             "cache_prompt": rng.choice([True, False])})
        alone = [ids_of(self.server.complete(**{**request, "cache_prompt": False})) for request in requests]
        together = [None] * len(requests)

        def ask(number):
            time.sleep(random.random())
            together[number] = ids_of(self.server.complete(**requests[number]))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(requests))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(together, alone)

    def test_streams_what_it_answers(self):
        body = {"messages": [{"role": "user", "content": "Tell me a story."}], "thinking": False, "temperature": 0,
                "max_tokens": 50, "return_token_ids": True, "stream_options": {"include_usage": True}}
        whole = self.server.post("/v1/chat/completions", body)
        chunks = self.server.events("/v1/chat/completions", body)
        text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
        ids = [i for c in chunks if c["choices"] for i in c["choices"][0].get("token_ids", [])]
        self.assertEqual(text, whole["choices"][0]["message"]["content"])
        self.assertEqual(ids, ids_of(whole))
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], len(ids))

    def test_scores_a_prompt(self):
        answer = self.server.complete(prompt="Once upon a time there was a", max_tokens=0, echo=True, logprobs=1)
        logprobs = answer["choices"][0]["logprobs"]["token_logprobs"]
        self.assertIsNone(logprobs[0])
        self.assertTrue(all(-30 < value < 0 for value in logprobs[1:]))
        greedy = self.server.complete(prompt="Once upon a time there was a", max_tokens=1, temperature=0, logprobs=3)
        top = greedy["choices"][0]["logprobs"]
        self.assertAlmostEqual(top["token_logprobs"][0], max(top["top_logprobs"][0].values()), places=6)

    def test_keeps_to_a_schema_that_the_model_would_not(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                                   "age": {"type": "integer", "minimum": 1, "maximum": 120},
                                                   "kind": {"enum": ["cat", "dog"]}},
                  "required": ["name", "age", "kind"], "additionalProperties": False}
        for seed in range(5):
            answer = self.server.post("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "A pet."}], "thinking": False, "seed": seed, "max_tokens": 300,
                "response_format": {"type": "json_schema", "json_schema": {"name": "pet", "schema": schema}}})
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
            pet = json.loads(answer["choices"][0]["message"]["content"])
            self.assertEqual(set(pet), {"name", "age", "kind"})
            self.assertTrue(1 <= pet["age"] <= 120 and pet["kind"] in ("cat", "dog") and len(pet["name"]) <= 12)

    def test_calls_a_tool_that_it_must_call(self):
        tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {
            "type": "object", "required": ["city", "days"],
            "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}}}]
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            answer = self.server.post("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "Weather?"}], "thinking": False, "max_tokens": 400,
                "tools": tools, "tool_choice": choice, "parallel_tool_calls": False})
            call = answer["choices"][0]["message"]["tool_calls"][0]["function"]
            arguments = json.loads(call["arguments"])
            self.assertEqual(call["name"], "get_weather")
            self.assertIn(arguments["city"], ("Paris", "Rome"))
            self.assertTrue(1 <= arguments["days"] <= 9)

    def test_never_generates_a_banned_token(self):
        prompt = "Once upon a time"
        first = ids_of(self.server.complete(prompt=prompt, max_tokens=8, temperature=0))[0]
        banned = self.server.complete(prompt=prompt, max_tokens=8, temperature=0, logit_bias={str(first): -100})
        self.assertNotIn(first, ids_of(banned))

    def test_never_generates_a_piece_of_an_image(self):
        answer = self.server.complete(prompt="Once", max_tokens=8, logit_bias={"8168": 100}, ignore_eos=True)
        self.assertNotIn(8168, ids_of(answer))

    def test_an_answer_that_fails_ends_the_others_of_its_request(self):
        # One of two beginnings leads to a place where every token is banned.
        q = [str(i) for i in self.server.post("/tokenize", {"content": "q"})["tokens"]]
        body = {"prompt": "x", "n": 4, "stream": True, "max_tokens": 900, "temperature": 2, "grammar":
                'root ::= "a" "q" | "b" [a-z]{800}', "logit_bias": {token: -100 for token in q}}
        for seed in range(4):
            self.server.request("POST", "/v1/completions", {**body, "seed": seed})
            for _ in range(400):
                slots = json.loads(self.server.request("GET", "/slots")[1])["slots"]
                if not any(slot["is_processing"] for slot in slots):
                    break
                time.sleep(0.05)
            else:
                self.fail(f"still at work: {slots}")

    def test_bad_requests_disturb_nobody(self):
        steady = {}

        def generate():
            steady["ids"] = ids_of(self.server.complete(prompt="Once", max_tokens=200, temperature=0, ignore_eos=True))

        thread = threading.Thread(target=generate)
        thread.start()
        bad = [b"{", b"[" * 100000, b"\xff\xfe", b"{}", b'{"prompt": [1, -1]}', b'{"prompt": "x", "temperature": NaN}',
               b'{"prompt": "x", "top_p": -1}', b'{"prompt": "x", "max_tokens": "many"}',
               json.dumps({"prompt": [5] * 5000}).encode()]
        for body in bad:
            status, text = self.server.request("POST", "/v1/completions", body)
            self.assertEqual(status, 400, text)
            self.assertIn("message", json.loads(text)["error"])
        thread.join()
        self.assertEqual(steady["ids"], ids_of(self.server.complete(prompt="Once", max_tokens=200, temperature=0,
                                                                    ignore_eos=True, cache_prompt=False)))

    def test_a_client_that_leaves_during_prefill_frees_its_slot(self):
        for stream in (True, False):
            connection = socket.create_connection(("127.0.0.1", self.server.port))
            body = json.dumps({"prompt": random_prompt(random.Random(9), 900), "max_tokens": 100, "stream": stream,
                               "ignore_eos": True})
            connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}"
                               .encode())
            time.sleep(0.1)
            connection.close()
            deadline = time.monotonic() + WAIT_S
            while time.monotonic() < deadline:
                slots = json.loads(self.server.request("GET", "/slots")[1])["slots"]
                if not any(slot["is_processing"] for slot in slots):
                    break
                time.sleep(0.05)
            else:
                self.fail(f"still at work: {slots}")

    def test_metrics_count(self):
        self.server.complete(prompt="Hi", max_tokens=3, ignore_eos=True)
        text = self.server.request("GET", "/metrics")[1].decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        self.assertGreaterEqual(float(values["fathom_generated_tokens_total"]), 3)
        self.assertGreater(float(values["fathom_steps_total"]), 0)


class LifeCycle(unittest.TestCase):
    def test_refuses_an_open_bind_without_a_key(self):
        told = subprocess.run([FATHOM, "serve", "--host", "0.0.0.0", "--port", "0"], capture_output=True, text=True)
        self.assertEqual(told.returncode, 1)
        self.assertIn("without a key", told.stderr)

    def test_refuses_a_key_that_is_empty(self):
        told = subprocess.run([FATHOM, "serve", "--port", "0", "--api-key", ""], capture_output=True, text=True)
        self.assertEqual(told.returncode, 1)
        self.assertIn("an empty key", told.stderr)

    def test_states_on_disk_survive_a_restart_and_damage(self):
        prompt = random_prompt(random.Random(5), 700)
        with tempfile.TemporaryDirectory() as folder:
            options = ["--cache-dir", folder, "--cache-min-tokens", "64"]
            with Server(*options) as server:
                first = server.complete(prompt=prompt, max_tokens=20, temperature=0, ignore_eos=True)
            self.assertTrue(os.listdir(folder))
            with Server(*options) as server:
                second = server.complete(prompt=prompt, max_tokens=20, temperature=0, ignore_eos=True)
                self.assertGreater(second["usage"]["prompt_tokens_details"]["cached_tokens"], 600)
                self.assertEqual(ids_of(second), ids_of(first))
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), "r+b") as file:
                    file.seek(os.path.getsize(file.name) // 2)
                    file.write(b"damage")
            with Server(*options) as server:
                third = server.complete(prompt=prompt, max_tokens=20, temperature=0, ignore_eos=True)
                self.assertEqual(third["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
                self.assertEqual(ids_of(third), ids_of(first))

    def test_ends_in_good_order_when_its_terminal_closes(self):
        with Server() as server:
            server.process.send_signal(signal.SIGHUP)
            self.assertEqual(server.process.wait(60), 0)

    def test_ends_in_good_order(self):
        with Server("--grace", "0.2") as server:
            result = {}

            def generate():
                result["answer"] = server.complete(prompt="Once", max_tokens=900, temperature=0, ignore_eos=True)

            thread = threading.Thread(target=generate)
            thread.start()
            time.sleep(0.5)
            server.process.send_signal(signal.SIGTERM)
            thread.join()
            self.assertEqual(server.process.wait(WAIT_S), 0)
            details = result["answer"]["choices"][0]["finish_details"]["type"]
            self.assertIn(details, ("shutdown", "max_tokens"))


if __name__ == "__main__":
    FATHOM = sys.argv.pop(1)
    unittest.main(verbosity=2)
