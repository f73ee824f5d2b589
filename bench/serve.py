#!/usr/bin/env python3
"""Measures `fathom serve` as its users see it and prints one table. Needs nothing but Python.

usage: serve.py FATHOM [serve options]     for example: serve.py build/release/bin/fathom --threads 16
"""
import http.client
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

FATHOM, OPTIONS = sys.argv[1], sys.argv[2:]


class Server:
    def __init__(self, *options):
        self.process = subprocess.Popen([FATHOM, "serve", "--port", "0", *OPTIONS, *options], stdout=subprocess.PIPE,
                                        text=True)
        self.port = int(self.process.stdout.readline().split("http://127.0.0.1:")[1].split()[0])
        self.request("POST", "/v1/completions", {"prompt": "Hello", "max_tokens": 8})    # warm up

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request(method, path, json.dumps(body) if body else None)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def stream(self, prompt, tokens, times, **more):
        """Appends the arrival time of every token; -> seconds to the first"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        begin = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
             "return_token_ids": True, **more}))
        response = connection.getresponse()
        while line := response.readline():
            if line.startswith(b"data: {") and b'"token_ids"' in line:
                times.append(time.perf_counter())
        connection.close()
        return times[0] - begin


def prompt_of(seed, length):
    rng = random.Random(seed)
    return [0] + [rng.randrange(3, 8000) for _ in range(length - 1)]


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def gaps(times):
    return [(later - earlier) * 1000 for earlier, later in zip(times, times[1:])]


def row(what, *figures):
    print(f"| {what} | " + " | ".join(figures) + " |", flush=True)


def measure_users(server):
    print("\n| users at once | tokens/s together | first token, median ms | between tokens, median ms | 99 % below ms |")
    print("|---|---|---|---|---|")
    for users in (1, 4, 16, 64):
        best = None
        for _ in range(3):
            times = [[] for _ in range(users)]
            first = [0.0] * users

            def use(user):
                first[user] = server.stream(prompt_of(user, 64), 128, times[user], cache_prompt=False)

            threads = [threading.Thread(target=use, args=(user,)) for user in range(users)]
            begin = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rate = users * 128 / (time.perf_counter() - begin)
            between = [gap for user in times for gap in gaps(user)]
            if best is None or rate > best[0]:
                best = (rate, statistics.median(first) * 1000, statistics.median(between), percentile(between, 0.99))
        row(str(users), f"{best[0]:.0f}", f"{best[1]:.0f}", f"{best[2]:.1f}", f"{best[3]:.1f}")


def measure_company(server):
    print("\n| one user generates | between tokens, median ms | 99 % below ms | longest ms |")
    print("|---|---|---|---|")
    for name, length in (("alone", 0), ("while another's prompt of 12,000 tokens is evaluated", 12000)):
        times, other = [], []
        speaker = threading.Thread(target=server.stream, args=(prompt_of(1, 32), 400, times))
        speaker.start()
        while len(times) < 20:
            time.sleep(0.001)
        begin = time.perf_counter()
        if length:
            server.stream(prompt_of(2, length), 1, other, cache_prompt=False)
        end = time.perf_counter()
        speaker.join()
        between = [(b - a) * 1000 for a, b in zip(times, times[1:]) if length == 0 or begin < b < end]
        row(name, f"{statistics.median(between):.1f}", f"{percentile(between, 0.99):.1f}", f"{max(between):.1f}")


def measure_leaving(server):
    latencies = []
    for attempt in range(20):
        body = json.dumps({"prompt": prompt_of(100 + attempt, 14000), "max_tokens": 1, "stream": True,
                           "cache_prompt": False})
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        time.sleep(0.3)
        client.close()
        begin = time.perf_counter()
        while any(slot["is_processing"] for slot in server.request("GET", "/slots")["slots"]):
            pass
        latencies.append((time.perf_counter() - begin) * 1000)
    print("\n| a client leaves while its prompt is evaluated | median ms | longest ms |\n|---|---|---|")
    row("until its slot is free", f"{statistics.median(latencies):.1f}", f"{max(latencies):.1f}")


def continuation(server, name, prompt):
    answer = server.request("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 256, "temperature": 0,
                                                        "ignore_eos": True, "return_token_ids": True})
    usage, timings = answer["usage"], answer["timings"]
    evaluated = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    row(name, f"{usage['prompt_tokens']}", f"{evaluated}", f"{timings['prefill_ms']:.0f}",
        f"{timings['decode_tokens_per_second']:.0f}")
    return prompt + answer["choices"][0]["token_ids"]


def measure_reuse():
    print("\n| prompt | tokens | evaluated | prefill ms | decode tokens/s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        with Server("--cache-dir", folder) as server:
            text = continuation(server, "new", prompt_of(7, 6000))
            text = continuation(server, "with its answer and 3,000 more", text + prompt_of(8, 3000))
            text = continuation(server, "with its answer and 3,000 more", text + prompt_of(9, 3000))
        with Server("--cache-dir", folder) as server:
            continuation(server, "the last one with 100 more, after a restart", text + prompt_of(10, 100))


def main():
    with Server("--parallel", "64", "--ctx", "16384") as server:
        props = server.request("GET", "/props")
        print(f"{props['model']} on {props['backend']}, fathom {props['version']}")
        measure_users(server)
        measure_company(server)
        measure_leaving(server)
    measure_reuse()


if __name__ == "__main__":
    main()
