#!/usr/bin/env python3
"""A server without a model that speaks as others do, for tests of what measures them.

Python's standard library only. The next id follows from the position and the last id. Evaluating a prompt and
generating take the time that the command line says. Every request, every token and every fault is written to a log
with CLOCK_MONOTONIC, one JSON object a line, before it happens on the network: a client can never have seen a token
before its line's time.

usage: fake_server.py fathom|llama_cpp|vllm|sglang|mlx_serve|omlx|ds4 --port PORT [--log FILE] [options]
"""
import argparse
import http.server
import json
import os
import re
import socket
import sys
import threading
import time

VOCABULARY = 1000
EOS = 1
MODEL = "fake-model"


def next_id(position, last):
    """Never EOS."""
    return (last * 31 + position * 7 + 11) % VOCABULARY + 3


def text_of(ids):
    return "".join(f" t{number}" for number in ids)


def ids_of(text):
    return [int(word[1:]) if re.fullmatch(r"t\d+", word) else sum(word.encode()) % VOCABULARY + 3
            for word in text.split()]


class Log:
    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8") if path else None
        self.lock = threading.Lock()

    def write(self, what, **members):
        if self.file is None:
            return
        with self.lock:
            self.file.write(json.dumps({"what": what, "ns": time.monotonic_ns(), **members}) + "\n")
            self.file.flush()


class State:
    """What is kept of the last request."""

    def __init__(self, behaviour):
        self.behaviour = behaviour
        self.ids = []

    def cached_tokens(self, prompt):
        count = 0
        for ours, theirs in zip(self.ids, prompt[:-1]):
            if ours != theirs:
                break
            count += 1
        return count

    def keep(self, prompt, generated):
        """The last token of either was sampled or is the prompt's, and never evaluated."""
        whole = prompt + generated if self.behaviour == "exact" else prompt
        self.ids = [] if self.behaviour == "none" else whole[:-1]


class Request:
    """What all dialects have in common."""

    def __init__(self, body, prompt, max_tokens, options):
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.ignores_eos = options.get("ignore_eos") is True or (body.get("logit_bias") or {}).get("1") == -100


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    options = log = state = None
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    # Answers

    def send_json(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin_stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def send_bytes(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def send_event(self, value):
        data = value if isinstance(value, str) else json.dumps(value)
        self.send_bytes(f"data: {data}\n\n".encode())

    def end_stream(self):
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    # Requests

    def read_body(self):
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        return json.loads(data) if data else None

    def is_ready(self):
        return time.monotonic() >= self.options.ready_at

    def do_GET(self):
        if not self.is_ready():
            return self.send_json({"error": {"message": "loading"}}, 503)
        answers = {
            "/health": {"status": "ok"},
            "/v1/models": {"object": "list", "data": [{"id": MODEL}]},
            "/props": {"version": "9.8.7", "build_info": "b9876"},
            "/version": {"version": "0.99"},
            "/get_server_info": {"version": "0.77"},
            "/get_model_info": {"model_path": MODEL},
        }
        if self.path in answers:
            return self.send_json(answers[self.path])
        return self.send_json({"error": {"message": f"no such path: {self.path}"}}, 404)

    def do_POST(self):
        body = self.read_body()
        self.log.write("request", path=self.path, body=body, key=self.headers.get("Authorization"))
        dialect = self.options.dialect
        if self.options.status:
            return self.send_json({"error": {"message": "the fake server refuses"}}, self.options.status)
        clears = {"vllm": "/reset_prefix_cache", "sglang": "/flush_cache", "llama_cpp": "/slots/0?action=erase"}
        if self.path == clears.get(dialect):
            self.state.ids = []
            return self.send_json({})
        if self.path == "/tokenize":
            return self.send_json({"tokens": ids_of(body.get("content") or body.get("prompt") or "")})
        completion = {"llama_cpp": "/completion", "sglang": "/generate"}.get(dialect, "/v1/completions")
        if self.path == completion:
            return self.complete(body)
        if self.path == "/v1/chat/completions":
            return self.chat(body)
        return self.send_json({"error": {"message": f"no such path: {self.path}"}}, 404)

    def complete(self, body):
        dialect = self.options.dialect
        if dialect == "sglang":
            sampling = body.get("sampling_params", {})
            prompt = body["input_ids"] if "input_ids" in body else body["text"]
            request = Request(body, prompt, sampling.get("max_new_tokens", 16), sampling)
        else:
            request = Request(body, body["prompt"], body.get("n_predict", body.get("max_tokens", 16)), body)
        takes_ids = dialect != "ds4"
        if isinstance(request.prompt, str):
            request.prompt = ids_of(request.prompt)
        elif not takes_ids:
            return self.send_json({"error": {"message": "prompt: expected a string"}}, 400)
        if not body.get("stream"):
            return self.send_logprobs(request, body)
        Stream(self, request, body, is_chat=False).run()

    def chat(self, body):
        text = "".join(message["content"] for message in body["messages"])
        request = Request(body, ids_of(text), body.get("max_tokens", 16), body)
        Stream(self, request, body, is_chat=True).run()

    def send_logprobs(self, request, body):
        best = next_id(len(request.prompt), request.prompt[-1])
        count = body.get("n_probs") or body.get("logprobs") or body.get("top_logprobs_num")
        entries = [((best + index) % VOCABULARY, -0.5 - index) for index in range(count)]
        entries.reverse()                       # the client sorts
        if self.options.dialect == "llama_cpp":
            top = [{"id": token, "logprob": logprob} for token, logprob in entries]
            return self.send_json({"content": "", "completion_probabilities": [{"top_logprobs": top}]})
        if self.options.dialect == "sglang":
            top = [[logprob, token, None] for token, logprob in entries]
            return self.send_json({"text": "", "meta_info": {"output_top_logprobs": [top]}})
        top = {f"token_id:{token}": logprob for token, logprob in entries}
        return self.send_json({"choices": [{"text": "", "logprobs": {"top_logprobs": [top]}}]})


class Stream:
    """One streamed answer."""

    def __init__(self, handler, request, body, is_chat):
        self.handler, self.request, self.body, self.is_chat = handler, request, body, is_chat
        self.options = handler.options
        self.dialect = self.options.dialect
        if is_chat and self.dialect in ("llama_cpp", "sglang"):
            self.dialect = "openai"
        self.ids = []                           # generated
        self.cached = 0
        self.prefill_s = self.decode_s = 0.0
        self.finish = "length"

    def run(self):
        handler, options = self.handler, self.options
        if self.body.get("cache_prompt") is False:
            handler.state.ids = []
        self.cached = handler.state.cached_tokens(self.request.prompt)
        handler.begin_stream()
        self.prefill()
        begun = time.monotonic()
        while len(self.ids) < self.request.max_tokens:
            ids = self.draw(min(options.per_event, self.request.max_tokens - len(self.ids)))
            if not ids:
                break
            if not self.send_tokens(ids):
                return
        self.decode_s = time.monotonic() - begun
        handler.state.keep(self.request.prompt, self.ids)
        self.send_end()

    def prefill(self):
        handler, options = self.handler, self.options
        evaluated = len(self.request.prompt) - self.cached
        self.prefill_s = evaluated * options.prefill_us / 1e6
        time.sleep(self.prefill_s)
        if self.body.get("return_progress"):
            total = len(self.request.prompt)
            for done in (total // 2, total):
                handler.log.write("prefill", done=done)
                handler.send_event({
                    "index": 0, "content": "", "tokens": [], "stop": False,
                    "prompt_progress": {"total": total, "cache": self.cached, "processed": done, "time_ms": 0}})
        echoed = list(self.request.prompt)
        if options.wrong_ids:
            echoed[-1] += 1
        if self.dialect in ("fathom", "vllm") and self.body.get("return_token_ids") and not self.is_chat:
            handler.send_event({"choices": [{"index": 0, "text": "", "prompt_token_ids": echoed,
                                             "finish_reason": None}]})

    def draw(self, count):
        drawn = []
        for _ in range(count):
            position = len(self.request.prompt) + len(self.ids) + len(drawn)
            last = (self.request.prompt + self.ids + drawn)[-1]
            if len(self.ids) + len(drawn) == self.options.eos_after and not self.request.ignores_eos:
                self.finish = "stop"
                break
            drawn.append(next_id(position, last))
        return drawn

    def send_tokens(self, ids):
        """False if a fault ended the answer."""
        handler, options = self.handler, self.options
        done = len(self.ids)
        if options.die_after == done:
            handler.log.write("die")
            print("fake server: dying as it was told to", file=sys.stderr, flush=True)
            os._exit(3)
        if options.hang_after == done:
            handler.log.write("hang")
            handler.server.hang.wait()
            return False
        if options.cut_after == done:
            handler.log.write("cut")
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return False
        if options.error_after == done:
            handler.log.write("error")
            handler.send_event({"error": {"message": "the fake server failed", "code": 500}})
            handler.end_stream()
            return False
        if options.bad_utf8_after == done:
            handler.log.write("bad_utf8")
            handler.send_bytes(b'data: {"choices":[{"text":"\xff\xfe"}]}\n\n')
        while options.endless:    # until the client has had enough
            handler.send_event(self.token_event(ids))
        time.sleep(len(ids) * options.token_us / 1e6)
        self.ids += ids
        handler.log.write("tokens", ids=ids)
        handler.send_event(self.token_event(ids))
        return True

    def token_event(self, ids):
        text = text_of(ids)
        if self.dialect == "llama_cpp":
            return {"index": 0, "content": text, "tokens": ids, "stop": False, "id_slot": 0}
        if self.dialect == "sglang":
            return {"text": text_of(self.ids), "output_ids": self.ids, "meta_info": self.meta(None)}
        choice = {"index": 0, "finish_reason": None}
        if self.is_chat:
            choice["delta"] = {"content": text}
        else:
            choice["text"] = text
        if self.dialect in ("fathom", "vllm") and self.body.get("return_token_ids"):
            choice["token_ids"] = ids
        return {"model": MODEL, "choices": [choice]}

    def meta(self, reason):
        return {"prompt_tokens": self.claimed_prompt(), "completion_tokens": len(self.ids),
                "cached_tokens": self.cached, "finish_reason": reason}

    def claimed_prompt(self):
        return len(self.request.prompt) + (1 if self.options.wrong_ids else 0)

    def send_end(self):
        handler = self.handler
        if self.dialect == "llama_cpp":
            handler.send_event({
                "index": 0, "content": "", "tokens": [], "stop": True,
                "stop_type": "limit" if self.finish == "length" else "eos",
                "tokens_predicted": len(self.ids), "tokens_evaluated": self.claimed_prompt(),
                "timings": {"cache_n": self.cached, "prompt_n": len(self.request.prompt) - self.cached,
                            "prompt_ms": self.prefill_s * 1e3, "predicted_ms": self.decode_s * 1e3}})
            return handler.end_stream()
        if self.dialect == "sglang":
            handler.send_event({"text": text_of(self.ids), "output_ids": self.ids,
                                "meta_info": self.meta({"type": self.finish})})
        else:
            choice = {"index": 0, "finish_reason": self.finish}
            choice["delta" if self.is_chat else "text"] = {} if self.is_chat else ""
            handler.send_event({"model": MODEL, "choices": [choice]})
            if (self.body.get("stream_options") or {}).get("include_usage"):
                handler.send_event(self.usage_event())
        if not self.options.no_done:
            handler.send_event("[DONE]")
        handler.end_stream()

    def usage_event(self):
        usage = {"prompt_tokens": self.claimed_prompt(), "completion_tokens": len(self.ids)}
        event = {"model": MODEL, "choices": [], "usage": usage}
        if self.dialect == "omlx":
            usage.update(cached_tokens=self.cached, prompt_eval_duration=self.prefill_s,
                         generation_duration=self.decode_s)
        elif self.dialect != "mlx_serve":       # which says nothing of its cache in completions
            usage["prompt_tokens_details"] = {"cached_tokens": self.cached}
        if self.dialect == "fathom":
            event["timings"] = {"prefill_ms": self.prefill_s * 1e3, "decode_ms": self.decode_s * 1e3}
        return event


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass                                    # clients that leave


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dialect", choices=["fathom", "llama_cpp", "vllm", "sglang", "mlx_serve", "omlx", "ds4"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log")
    parser.add_argument("--prefill-us", type=float, default=0, help="for each evaluated token of a prompt")
    parser.add_argument("--token-us", type=float, default=0, help="before each generated token")
    parser.add_argument("--per-event", type=int, default=1, help="tokens in an event")
    parser.add_argument("--cache", choices=["exact", "reprocessed", "none"], default="exact")
    parser.add_argument("--eos-after", type=int, default=-1, help="the answer ends there unless that is excluded")
    parser.add_argument("--late", type=float, default=0, help="seconds until it is ready")
    parser.add_argument("--die-at-start", action="store_true")
    parser.add_argument("--wrong-ids", action="store_true", help="echoes and counts others than were sent")
    parser.add_argument("--no-done", action="store_true")
    parser.add_argument("--endless", action="store_true", help="never stops generating")
    parser.add_argument("--status", type=int, default=0, help="of every POST")
    for fault in ("die", "hang", "cut", "error", "bad-utf8"):
        parser.add_argument(f"--{fault}-after", type=int, default=-1, help="tokens")
    options = parser.parse_args()
    if options.die_at_start:
        print("fake server: cannot load the model", file=sys.stderr, flush=True)
        return 7
    options.ready_at = time.monotonic() + options.late
    Handler.options, Handler.log, Handler.state = options, Log(options.log), State(options.cache)
    server = Server(("127.0.0.1", options.port), Handler)
    server.hang = threading.Event()
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
