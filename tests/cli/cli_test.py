#!/usr/bin/env python3
"""Runs the built program with the embedded model: what users type, and what they get.

Usage: cli_test.py PROGRAM MODEL [unittest options]
"""
import fcntl
import json
import math
import os
import pty
import re
import select
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

PROGRAM, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
KOREAN = "옛날 옛적에 🐉 용이"
WAIT_S = 120    # generous: sanitizer builds on a busy machine


def environment(folder):
    names = {name: value for name, value in os.environ.items() if not name.startswith(("FATHOM", "LC_", "LANG"))}
    return {**names, "FATHOM_MODEL": MODEL, "XDG_STATE_HOME": folder, "LC_ALL": "C.UTF-8", "TERM": "xterm"}


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content)
        return path

    def fathom(self, *words, text=b"", code=0):
        """-> (standard output, standard error) after checking the exit code"""
        result = subprocess.run([PROGRAM, *words], input=text, capture_output=True, timeout=WAIT_S,
                                env=environment(self.folder), check=False)
        error = result.stderr.decode()
        self.assertEqual(result.returncode, code, f"{words}: {error}")
        return result.stdout, error

    def refuses(self, *words, code=2, says, text=b""):
        out, error = self.fathom(*words, text=text, code=code)
        self.assertEqual(out, b"")
        self.assertEqual(error.count("\n"), 1, error)
        self.assertTrue(error.startswith("fathom: "), error)
        self.assertIn(says, error)

    def greedy(self, *words, **more):
        return self.fathom("run", "--temp", "0", *words, **more)


class RunTest(CliTest):
    def test_greedy_is_the_same_on_any_thread_count(self):
        one, error = self.greedy("Once upon a time", "-n", "24", "--threads", "1")
        two, _ = self.greedy("Once upon a time", "-n", "24", "--threads", "2")
        self.assertEqual(one, two)
        self.assertGreater(len(one), 24)
        self.assertRegex(error, r"prefill +\d+ tokens +[\d.]+ tok/s\ndecode +24 tokens +[\d.]+ tok/s\n")
        self.assertRegex(error, r"first token +[\d.]+ s\nended +length\n$")

    def test_seed_is_told_and_repeats(self):
        first, error = self.fathom("run", "Once upon a time", "-n", "16")
        seed = re.search(r"seed +(\d+)", error).group(1)
        again, _ = self.fathom("run", "Once upon a time", "-n", "16", "--seed", seed, "--threads", "2")
        self.assertEqual(first, again)
        other, _ = self.fathom("run", "Once upon a time", "-n", "16", "--seed", seed + "1")
        self.assertNotEqual(first, other)

    def test_ids_in_and_out_are_the_same_continuation(self):
        text, _ = self.greedy("The old fisherman", "-n", "20")
        prompt, _ = self.fathom("tokenize", "--bos", "--ids-only", "The old fisherman")
        ids, _ = self.greedy("--tokens", "-", "-n", "20", "--ids", text=prompt)
        array = json.dumps([int(word) for word in prompt.split()]).encode()
        again, _ = self.greedy("--tokens", self.path("ids.json", array), "-n", "20", "--ids")
        self.assertEqual(ids, again)
        self.assertEqual(len(ids.split()), 20)
        self.assertEqual(self.fathom("detokenize", text=ids)[0], text)

    def test_stop_string_never_leaks(self):
        whole = self.greedy("Once upon a time", "-n", "40")[0].decode()
        pieces = self.fathom("tokenize", "--pieces", whole)[0].decode().splitlines()
        # From the middle of one token to the middle of the next.
        stop = next(json.loads(a)[-2:] + json.loads(b)[:3] for a, b in zip(pieces[6:], pieces[7:])
                    if len(json.loads(a)) > 3 and len(json.loads(b)) > 4)
        cut, error = self.greedy("Once upon a time", "-n", "40", "--stop", stop, "--stop", "never there")
        self.assertEqual(cut.decode(), whole[:whole.index(stop)])
        self.assertRegex(error, r"ended +stop string")
        ids, _ = self.greedy("Once upon a time", "-n", "40", "--stop", stop, "--ids")
        kept = self.fathom("detokenize", text=ids)[0].decode()
        self.assertTrue(whole.startswith(kept) and stop[0] not in kept[len(cut.decode()):])
        self.assertLessEqual(len(kept), len(cut.decode()))

    def test_unfinished_stop_string_is_flushed(self):
        whole = self.greedy("Once upon a time", "-n", "12")[0].decode()
        kept = self.greedy("Once upon a time", "-n", "12", "--stop", whole[-3:] + "\x01")[0].decode()
        self.assertEqual(kept, whole)

    def test_whole_characters_only(self):
        process = subprocess.Popen([PROGRAM, "run", "--temp", "0", "-n", "60", KOREAN], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=environment(self.folder))
        text = b""
        while chunk := os.read(process.stdout.fileno(), 4096):
            chunk.decode()      # a pipe hands over what one or more write() calls wrote: never half a character
            text += chunk
        process.stdout.close()
        self.assertEqual(process.wait(WAIT_S), 0)
        self.assertRegex(text.decode(), "[가-힣]{3}")
        # Half a character at the end becomes one U+FFFD, and so does each half that another follows.
        lead = int(self.fathom("tokenize", "--ids-only", "🐉")[0].split()[0])
        broken, _ = self.greedy(KOREAN, "-n", "3", "--logit-bias", f"{lead}:1000")
        self.assertEqual(broken.decode(), "\ufffd" * 3)

    def test_prompt_from_a_pipe_and_a_file(self):
        expected, _ = self.greedy("Once upon a time", "-n", "8")
        self.assertEqual(self.greedy("-n", "8", text=b"Once upon a time\n")[0], expected)
        path = self.path("prompt.txt", b"Once upon a time\n")
        self.assertEqual(self.greedy("-n", "8", "--prompt-file", path)[0], expected)
        self.assertEqual(self.greedy("-n", "8", "--echo", "Once upon a time")[0], b"Once upon a time" + expected)

    def test_empty_prompt_begins_a_text(self):
        self.assertGreater(len(self.greedy("", "-n", "8")[0]), 0)
        self.assertEqual(self.greedy("", "-n", "8")[0], self.greedy("-n", "8", text=b"")[0])
        self.refuses("run", "", "--no-bos", code=1, says="the prompt is empty")

    def test_context(self):
        long = "word " * 200
        self.refuses("run", long, "--ctx", "64", code=1, says="context holds 64")
        out, error = self.greedy("Once upon a time", "--ctx", "16", "--ignore-eos", "-n", "-1", "--ids")
        self.assertRegex(error, r"ended +context full")
        prefilled = int(re.search(r"prefill +(\d+)", error).group(1))
        self.assertEqual(prefilled + len(out.split()), 17)      # the last one is written, not evaluated

    def test_eos_ends_and_can_be_ignored(self):
        out, error = self.greedy("--chat", "Hello!", "-n", "200")
        self.assertRegex(error, r"ended +end of sequence")
        self.assertNotIn("｜", out.decode())
        more, error = self.greedy("--chat", "Hello!", "-n", "120", "--ignore-eos")
        self.assertRegex(error, r"decode +120 tokens")
        self.assertTrue(more.startswith(out))

    def test_json_and_logprobs(self):
        text, _ = self.greedy("Once upon a time", "-n", "6")
        out, _ = self.greedy("Once upon a time", "-n", "6", "--json", "--logprobs", "3")
        *tokens, end = [json.loads(line) for line in out.decode().splitlines()]
        self.assertEqual(b"".join(bytes(token["bytes"]) for token in tokens), text)
        for token in tokens:
            self.assertEqual(len(token["top"]), 3)
            self.assertEqual(token["top"][0]["id"], token["id"])    # greedy
            self.assertAlmostEqual(token["top"][0]["logprob"], token["logprob"], places=9)
            self.assertLess(token["logprob"], 0)
        self.assertEqual((end["ended"], end["decode_tokens"]), ("length", 6))
        plain, error = self.greedy("Once upon a time", "-n", "6", "--logprobs", "2")
        self.assertEqual(plain, text)
        self.assertEqual(len(re.findall(r"^ +\d+ +-\d+\.\d{4}  \"", error, re.MULTILINE)), 6)

    def test_wrong_options(self):
        self.refuses("run", "x", "--temp", "warm", says="--temp")
        self.refuses("run", "x", "--temp", "nan", says="--temp")
        self.refuses("run", "x", "--top-p", "1.5", says="from 1e-06 to 1")
        self.refuses("run", "x", "-n", "3.5", says="whole number")
        self.refuses("run", "x", "--ctx", "12Q", says="128K")
        self.refuses("run", "x", "--memory", "lots", says="96GB")
        for seed in ("abc", "-1", "1.5", "18446744073709551616"):
            self.refuses("run", "x", "--seed", seed, says="--seed: expected a whole number")
        self.refuses("run", "x", "--logit-bias", "5", says="ID:B")
        self.refuses("run", "x", "--logit-bias", "999999:1", says="vocabulary")
        self.refuses("run", "x", "--backend", "abacus", says="--backend")
        self.refuses("run", "x", "--tmep", "1", says="did you mean --temp?")
        self.refuses("run", "x", "y", says="\"y\"")
        self.refuses("rnu", says="did you mean run?")
        self.refuses("run", "x", "--prompt-file", "y", says="more than one prompt")
        self.refuses("run", "--prompt-file", self.path("none.txt"), code=1, says="none.txt")
        self.refuses("run", "--tokens", "-", text=b"1 2 three", code=1, says="\"three\"")
        self.refuses("run", "--tokens", "-", text=b"1 2 999999", code=1, says="999999")

    def test_misspelt_model(self):
        os.mkdir(self.path("mini"))
        self.refuses("run", "x", "-m", self.path("mimi"), code=1, says="did you mean mini?")

    def test_a_prompt_may_be_a_command_name(self):
        self.assertGreater(len(self.greedy("chat", "-n", "4")[0]), 0)

    def test_ctrl_c_ends_with_statistics(self):
        process = subprocess.Popen([PROGRAM, "run", "Once", "-n", "-1", "--ignore-eos", "--ctx", "16K"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(self.folder))
        os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=WAIT_S)
        self.assertEqual(process.returncode, 130)
        self.assertRegex(error.decode(), r"decode +\d+ tokens[^\n]*\n.*\nended +interrupted")

    def test_ctrl_c_during_prefill(self):
        process = subprocess.Popen([PROGRAM, "run", "word " * 3000, "-n", "4", "--backend", "reference", "--ctx", "8K",
                                    "--step-rows", "32"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(self.folder))
        # The first progress line shows that work is going on.
        self.assertRegex(process.stderr.readline().decode(), r"prefill .*tokens")
        # Lines come at a steady interval; a rate is told as soon as a step is done, however slow the machine.
        rate = re.compile(r"prefill +\d+ %  \d+ tokens of 3\d+ tokens  .*tokens/s  .*left")
        self.assertTrue(any(rate.match(process.stderr.readline().decode()) for _ in range(60)))
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=WAIT_S)
        self.assertEqual((process.returncode, out), (130, b""))
        self.assertIn("interrupted", error.decode())

    def test_reader_that_leaves(self):
        process = subprocess.Popen([PROGRAM, "run", "Once", "-n", "-1", "--ignore-eos", "--ctx", "16K"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(self.folder))
        os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        error = process.stderr.read().decode()
        process.stderr.close()
        self.assertEqual(process.wait(WAIT_S), 141)
        self.assertRegex(error, r"ended +output closed")

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([PROGRAM, "run", "Once", "-n", "4"], stdout=full, stderr=subprocess.PIPE,
                                    env=environment(self.folder), timeout=WAIT_S, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"cannot write the output", result.stderr)


    def test_pack_that_shrinks(self):
        pack = self.path("pack")
        shutil.copytree(MODEL, pack)
        process = subprocess.Popen([PROGRAM, "run", "Once", "-n", "-1", "--ignore-eos", "--ctx", "16K", "-m", pack],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(self.folder))
        os.read(process.stdout.fileno(), 1)
        for name in os.listdir(pack):
            if name.endswith(".safetensors"):
                os.truncate(os.path.join(pack, name), 4096)
        _, error = process.communicate(timeout=WAIT_S)
        self.assertEqual(process.returncode, 1)
        # The mapped weights or the tables, whichever is touched first.
        self.assertRegex(error.decode(), r"^fathom: .*(became shorter|the file ends)[^\n]*\n$")


class StandardStreamsTest(CliTest):
    """Streams that are closed or cannot be written."""
    WORDS = (["run", "Once", "-n", "2"], ["inspect"], ["plan"], ["tokenize", "x"], ["detokenize", "5"], ["--help"],
             ["--version"], ["rnu"], ["run", "x", "-m", "nowhere"])

    def shell(self, words, redirection, text=b""):
        line = shlex.join([PROGRAM, *words]) + " " + redirection
        return subprocess.run(["sh", "-c", line], input=text, capture_output=True, timeout=WAIT_S,
                              env=environment(self.folder), check=False)

    def test_standard_error_does_not_matter(self):
        for words in self.WORDS:
            plain = self.shell(words, "")
            for redirection in ("2>&-", "2>/dev/full"):
                result = self.shell(words, redirection)
                self.assertEqual(result.returncode, plain.returncode, (words, redirection))
                if words[0] != "run":
                    self.assertEqual(result.stdout, plain.stdout)

    def test_standard_output_does(self):
        for words in self.WORDS[:-2]:
            for redirection in (">&-", ">/dev/full"):
                result = self.shell(words, redirection)
                self.assertEqual((result.returncode, result.stdout), (1, b""), (words, redirection))
                self.assertRegex(result.stderr, rb"^fathom: cannot write the output: [^\n]*\n$")
            self.assertEqual(self.shell(words, "<&- >&- 2>&-").returncode, 1, words)

    def test_closed_input_is_not_a_file_of_the_pack(self):
        for words in (["chat"], ["run"], ["tokenize"], ["detokenize"], ["chat-template", "-"]):
            result = self.shell(words, "<&-")
            self.assertEqual((result.returncode, result.stdout), (1, b""), words)
            self.assertIn(b"cannot read standard input", result.stderr)

    def test_endless_input(self):
        self.refuses("run", "--prompt-file", "/dev/zero", code=1, says="/dev/zero: more than 1 GiB")


class MemoryTest(CliTest):
    def peak_bytes(self, *words):
        """Of a child: the most that was resident of it, mapped files included."""
        child = os.fork()
        if child == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            os.execve(PROGRAM, [PROGRAM, *words], environment(self.folder))
        _, code, usage = os.wait4(child, 0)
        self.assertEqual(code, 0, words)
        return usage.ru_maxrss * 1024

    def test_plan_is_within_three_percent(self):
        for context in (1024, 8192):
            # Tokens without meaning reach every expert.
            ids = " ".join(str(100 + i * 2654435761 % 7919) for i in range(context - 4))
            options = ("--ctx", str(context), "--threads", "2")
            plan = json.loads(self.fathom("plan", "--json", *options)[0])
            planned = plan["peak_bytes"] - plan["checkpoint_bytes"]  # `run` keeps none
            found = self.peak_bytes("run", "--tokens", self.path("ids", ids.encode()), "-n", "4", *options)
            self.assertLess(abs(found / planned - 1), 0.03, f"{found} bytes, planned {plan}")


class SmallCommandsTest(CliTest):
    def test_help_and_version(self):
        self.assertRegex(self.fathom("--version")[0].decode(), r"^\S*\d+\.\d+")
        for command in ("run", "chat", "inspect", "plan", "tokenize", "detokenize", "chat-template"):
            self.assertIn("fathom " + command, self.fathom(command, "--help")[0].decode())
        self.fathom(code=2)

    def test_text_survives_tokens(self):
        text = (KOREAN + "\r\n\tint x = 3;  // ça va? 👩‍👩‍👧 <think> \n").encode()
        ids, _ = self.fathom("tokenize", "--ids-only", text=text)
        self.assertEqual(self.fathom("detokenize", text=ids)[0], text)
        self.assertEqual(self.fathom("detokenize", *ids.decode().split())[0], text)
        lines = self.fathom("tokenize", text=text)[0].decode().splitlines()
        self.assertEqual([line.split("\t")[0] for line in lines], ids.decode().split())

    def test_control_tokens_only_on_request(self):
        plain, _ = self.fathom("tokenize", "--ids-only", "<think>")
        special, _ = self.fathom("tokenize", "--ids-only", "--special", "<think>")
        self.assertEqual(len(special.split()), 1)
        self.assertGreater(len(plain.split()), 1)
        self.refuses("detokenize", "123456789", code=1, says="123456789")

    def test_chat_template(self):
        conversation = json.dumps({"messages": [{"role": "user", "content": "안녕 <think>"}], "thinking": False})
        text = self.fathom("chat-template", "-", text=conversation.encode())[0].decode()
        self.assertIn("<｜User｜>안녕 <think><｜Assistant｜></think>", text)
        path = self.path("chat.json", conversation.encode())
        ids, _ = self.fathom("chat-template", path, "--ids")
        parsed = json.loads(self.fathom("chat-template", path, "--json")[0])
        self.assertEqual(parsed["ids"], [int(word) for word in ids.split()])
        self.assertEqual((parsed["text"], parsed["starts_in_thinking"]), (text, False))
        self.assertEqual(self.fathom("detokenize", text=ids)[0].decode(), text)
        self.refuses("chat-template", "-", text=b'{"messages": 3}', code=1, says="messages")
        self.refuses("chat-template", "-", text=b"{", code=1, says="conversation")

    def test_plan(self):
        out, _ = self.fathom("plan", "--ctx", "4096", "--memory", "8GiB")
        self.assertGreater(len(out.splitlines()), 4)
        self.fathom("plan", "--ctx", "4096", "--memory", "1MB", code=3)
        for context in ("16385", "1M", "2e18"):
            self.refuses("plan", "--ctx", context, code=1, says="expected 1 to 16384 tokens")
        small = json.loads(self.fathom("plan", "--ctx", "1K", "--memory", "8GB", "--json")[0])
        large = json.loads(self.fathom("plan", "--ctx", "1K", "--memory", "8GB", "--json", "--sessions", "3")[0])
        self.assertEqual(large["kv_bytes"], 3 * small["kv_bytes"])
        self.assertEqual(small["budget_bytes"], 8 * 10**9)
        _, error = self.fathom("run", "x", "--memory", "1MB", code=1)
        self.assertTrue(error.startswith("fathom: "))


class InspectTest(CliTest):
    def copy_of_model(self):
        """a folder of links, so that one file can be damaged"""
        folder = self.path("pack")
        os.mkdir(folder)
        for name in os.listdir(MODEL):
            os.symlink(os.path.join(MODEL, name), os.path.join(folder, name))
        return folder

    def replace(self, path, content):
        os.remove(path)
        with open(path, "wb") as file:
            file.write(content)

    def test_whole_pack(self):
        text = self.fathom("inspect")[0].decode()
        self.assertIn("official", text)
        report = json.loads(self.fathom("inspect", MODEL, "--json")[0])
        self.assertEqual(report["problems"], [])

    def test_truncated(self):
        folder = self.copy_of_model()
        shard = os.path.join(folder, "model-00002-of-00006.safetensors")
        with open(shard, "rb") as file:
            content = file.read()
        self.replace(shard, content[:len(content) // 2])
        out, error = self.fathom("inspect", folder, code=1)
        self.assertIn("model-00002-of-00006.safetensors", out.decode() + error)
        _, error = self.fathom("run", "x", "-m", folder, code=1)
        self.assertIn("model-00002-of-00006.safetensors", error)
        self.assertEqual(error.count("\n"), 1)

    def test_sparse(self):
        folder = self.copy_of_model()
        shard = os.path.join(folder, "model-00003-of-00006.safetensors")
        with open(shard, "rb") as file:
            content = file.read()
        header_bytes = 8 + struct.unpack("<Q", content[:8])[0]
        self.replace(shard, content[:header_bytes])
        os.truncate(shard, len(content))
        out, _ = self.fathom("inspect", folder, code=1)
        self.assertIn("sparse", out.decode())

    def test_missing_shard_and_garbage(self):
        folder = self.copy_of_model()
        os.remove(os.path.join(folder, "model-00004-of-00006.safetensors"))
        out, error = self.fathom("inspect", folder, code=1)
        self.assertIn("model-00004-of-00006.safetensors", out.decode() + error)
        self.refuses("inspect", self.path("garbage.gguf", os.urandom(4096)), code=1, says="garbage.gguf")
        shutil.copy(os.path.join(MODEL, "config.json"), self.folder)
        self.refuses("inspect", self.path("empty.safetensors", b""), code=1, says="empty.safetensors")
        self.refuses("inspect", self.path("nothing"), code=1, says="no such file")
        os.mkfifo(self.path("pipe.gguf"))
        self.refuses("inspect", self.path("pipe.gguf"), code=1, says="not a regular file")


class Terminal:
    """The program with a terminal of its own."""

    def __init__(self, folder, *words):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))

        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([PROGRAM, *words], stdin=slave, stdout=slave, stderr=slave,
                                        preexec_fn=take_terminal, env=environment(folder))
        os.close(slave)
        self.text = ""
        self.bytes = b""

    def expect(self, pattern):
        """waits for the pattern in what was not matched before; -> what came before it and the match"""
        end = time.monotonic() + WAIT_S
        while True:
            self.text = self.bytes.decode(errors="ignore")
            match = re.search(pattern, self.text)
            if match:
                before = self.text[:match.start()]
                self.bytes = self.text[match.end():].encode()
                return before, match
            if not select.select([self.master], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"{pattern!r} did not come, but {self.text!r}")
            try:
                self.bytes += os.read(self.master, 4096)
            except OSError:
                raise AssertionError(f"{pattern!r} did not come before the end: {self.text!r}") from None

    def type(self, text, at_prompt=True):
        # The prompt is shown before the editor takes the keyboard; what comes between is echoed twice.
        end = time.monotonic() + WAIT_S
        while at_prompt and termios.tcgetattr(self.master)[3] & termios.ICANON and time.monotonic() < end:
            time.sleep(0.01)
        os.write(self.master, text.encode() if isinstance(text, str) else text)

    def say(self, text):
        """types a line when the prompt is there, -> what is shown until the next prompt"""
        self.type(text + "\r")
        self.expect(r"\n")
        shown = self.expect(r"(?:^|[\r\n])(?:\x1b\[K)?> ")[0]
        # On a slow machine a progress line comes and is taken back.
        return re.sub(r"^(?:\r[^\r\n]*\x1b\[K)+", "", shown)

    def end(self):
        while True:
            try:
                if not os.read(self.master, 4096):
                    break
            except OSError:
                break
        os.close(self.master)
        return self.process.wait(WAIT_S)


class ChatTest(CliTest):
    def start(self, *words):
        terminal = Terminal(self.folder, "chat", "--temp", "0", *words)
        self.addCleanup(terminal.process.kill)
        terminal.expect(r"> ")
        return terminal

    def test_two_turns_reuse_and_save(self):
        chat = self.start("-n", "30")
        first = chat.say("Tell me about a cat.")
        self.assertGreater(len(first.strip()), 3)
        chat.say("And what then?")
        stats = chat.say("/stats")
        reused = int(re.search(r"last turn +(\d+) tokens reused", stats).group(1))
        self.assertGreater(reused, 8)
        self.assertIn("extended", stats)
        position = re.search(r"context +(\d+) of", stats).group(1)
        saved = self.path("talk.json")
        self.assertIn(f"saved 4 messages to {saved} and {position} tokens", chat.say(f"/save {saved}"))
        third = chat.say("Why?")
        chat.say("/reset")
        self.assertIn(f"loaded 4 messages and {position} tokens", chat.say(f"/load {saved}"))
        self.assertEqual(chat.say("Why?"), third)
        self.assertGreater(int(re.search(r"(\d+) tokens reused", chat.say("/stats")).group(1)), reused)
        chat.type("/quit\r")
        self.assertEqual(chat.end(), 0)

        with open(saved, encoding="utf-8") as file:
            roles = [message["role"] for message in json.load(file)["messages"]]
        self.assertEqual(roles, ["user", "assistant"] * 2)
        fresh = self.start("-n", "30")
        self.assertIn("loaded 4 messages and", fresh.say(f"/load {saved}"))
        self.assertEqual(fresh.say("Why?"), third)
        with open(saved + ".state", "r+b") as file:     # a damaged state costs time, not the conversation
            file.seek(100)
            file.write(b"damage")
        self.assertIn("reads them again", fresh.say(f"/load {saved}"))
        self.assertEqual(fresh.say("Why?"), third)
        fresh.type(b"\x04")
        self.assertEqual(fresh.end(), 0)

    def test_ctrl_c_stops_the_answer_and_keeps_the_session(self):
        chat = self.start("--logit-bias", "1:-100")     # no end of sequence
        chat.type("Tell me a long story.\r")
        chat.expect(r"\n[^\r\n>]{4}")
        chat.type(b"\x03", at_prompt=False)
        chat.expect(r"\(interrupted\)")
        chat.expect(r"> ")
        self.assertIn("2 messages", chat.say("/stats"))
        chat.type("half a line\x03")
        chat.expect(r"> $")
        self.assertIn("2 messages", chat.say("/stats"))
        chat.type(b"\x04")
        self.assertEqual(chat.end(), 0)

    def test_deleting_and_moving_over_wide_characters(self):
        chat = self.start("-n", "4")
        chat.type("/system 한국어🐉é")
        chat.type("\x7f\x7f" + "\x1b[D" * 2 + "X" + "\x05" + "!\r")     # delete 2, left 2, insert, to the end
        chat.expect(r"the system text is set")
        chat.expect(r"> ")
        saved = self.path("talk.json")
        chat.say(f"/save {saved}")
        with open(saved, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["messages"][0]["content"], "한X국어!")
        chat.type("\x1b[A\x1b[A\r")      # the history: two lines up
        chat.expect(r"한X국어!")
        chat.expect(r"the system text is set")
        chat.type(b"\x04")
        chat.end()
        with open(os.path.join(self.folder, "fathom", "history"), encoding="utf-8") as file:
            self.assertIn("/save", file.read())

    def test_lines_that_go_on(self):
        chat = self.start("-n", "4")
        chat.type("/system one\\\r")
        chat.expect(r"\. ")
        chat.say("two")
        saved = self.path("talk.json")
        chat.say(f"/save {saved}")
        with open(saved, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["messages"][0]["content"], "one\ntwo")
        self.assertIn("unknown command /nonsense", chat.say("/nonsense"))
        self.assertIn("thinking: 30", chat.say("/think 30"))
        self.assertIn("expected off", chat.say("/think hard"))
        self.assertIn("\x1b[2m", chat.say("What is a boat?"))       # the thinking is dimmed
        chat.type("/quit\r")
        self.assertEqual(chat.end(), 0)

    def test_lines_from_a_pipe(self):
        out, error = self.fathom("chat", "--temp", "0", "-n", "20", text="Hello!\n안녕?\n/stats".encode())
        self.assertEqual(error.count("tokens reused"), 1)
        self.assertGreaterEqual(len(out.decode().splitlines()), 2)
        self.assertNotIn("> ", out.decode())
        self.assertNotIn("\x1b", out.decode())
        _, error = self.fathom("chat", text=b"/load nowhere\n", code=1)
        self.assertIn("cannot read nowhere", error)

    def test_saving_to_what_is_no_file(self):
        os.mkfifo(self.path("pipe"))
        os.symlink("/dev/null", self.path("link"))
        for name in ("pipe", "link", ""):
            _, error = self.fathom("chat", text=f"/save {self.path(name)}\n".encode(), code=1)
            self.assertIn("not a regular file", error)
        self.assertTrue(stat.S_ISFIFO(os.lstat(self.path("pipe")).st_mode))
        self.assertTrue(os.path.islink(self.path("link")))

    def test_loading_what_is_no_conversation(self):
        deep = b"[" * 200000 + b"]" * 200000
        for content, says in ((b"", "not a conversation"), (b"[]", "not a conversation"),
                              (b'{"messages": [3]}', "expected objects"),
                              (b'{"messages": [], "x": %b}' % deep, "nested deeper than 512 levels"),
                              (b'{"messages": [{"role": "user", "content": %b}]}' % deep, "nested deeper")):
            _, error = self.fathom("chat", text=f"/load {self.path('talk.json', content)}\n".encode(), code=1)
            self.assertIn(says, error)
        # Members of other types are refused by the next turn, not by the loading.
        odd = self.path("odd.json", b'{"messages": [{"role": 5}]}')
        _, error = self.fathom("chat", "-n", "2", text=f"/load {odd}\n/system x\nHello\n".encode(), code=1)
        self.assertIn("messages[1].role: expected a string", error)


def golden(name, code):
    """-> the numbers of a tensor of the embedded model's golden file"""
    path = os.path.join(MODEL, "../../tests/data/mini/golden.safetensors")
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        start = file.tell()
        begin, end = header[name]["data_offsets"]
        file.seek(start + begin)
        return struct.unpack(f"<{(end - begin) // 4}{code}", file.read(end - begin))


class QualityTest(CliTest):
    def setUp(self):
        super().setUp()
        ids, offsets = golden("doc_ids", "i"), golden("doc_offsets", "i")
        self.count = offsets[2]     # the first two documents
        self.ids = self.path("text.ids", " ".join(map(str, ids[:self.count])).encode())

    def evaluate(self, *words):
        out, _ = self.fathom("eval", "--tokens", self.ids, "--json", "-", *words)
        return json.loads(out)

    def test_perplexity_is_the_golden_one(self):
        nll = golden("exact/nll", "f")[:self.count - 2]
        found = self.evaluate("--numerics", "exact")
        self.assertEqual((found["tokens"], found["windows"]), (len(nll), 2))
        self.assertAlmostEqual(found["nll"]["value"], sum(nll) / len(nll), delta=2e-5)
        self.assertAlmostEqual(found["perplexity"]["value"], math.exp(found["nll"]["value"]), places=6)
        self.assertNotIn("kl_divergence", found)

    def test_a_pack_against_itself_and_its_file(self):
        file = self.path("official.ref")
        same = self.evaluate("--against", MODEL, "--save-reference", file, "--limit", "300")
        self.assertEqual((same["kl_max"], same["same_top"]["value"], same["nll_difference"]["value"]), (0, 1, 0))
        stored = self.evaluate("--reference", file, "--limit", "300")
        self.assertLess(stored["kl_max"], 1e-6)
        self.assertEqual(stored["nll"], same["nll"])
        self.assertEqual(stored["reference_fingerprint"], same["fingerprint"])
        self.refuses("eval", "--tokens", self.ids, "--reference", file, code=1, says="another text")
        self.refuses("eval", "--tokens", self.ids, "--reference", self.ids, code=1, says="reference logits")
        with open(file, "r+b") as damaged:
            damaged.seek(5000)
            damaged.write(b"damage")
        self.refuses("eval", "--tokens", self.ids, "--reference", file, "--limit", "300", code=1, says="checksum")

    def test_table_and_text(self):
        text = self.path("text.txt", b"Once upon a time there was a boat. It went over the sea.")
        out, _ = self.fathom("eval", text, "--json", self.path("numbers.json"))
        self.assertRegex(out.decode(), r"nats a token +[\d.]+ +± [\d.]+ +-\nperplexity +[\d.]+")
        with open(self.path("numbers.json"), encoding="utf-8") as file:
            self.assertIsNone(json.load(file)["nll"]["window_error"])
        self.refuses("eval", says="no text")
        self.refuses("eval", self.path("empty", b""), code=1, says="nothing to predict")
        self.refuses("eval", text, "--ctx", "10", "--stride", "11", code=1, says="stride of 11")

    def test_importance_makes_other_packs(self):
        importance = self.path("importance.gguf")
        for form in ("gguf", "dat"):
            self.fathom("imatrix", "--tokens", self.ids, "--limit", "200", "-o", importance, "--format", form)
            self.fathom("quantize", MODEL, "-o", self.path(f"{form}.gguf"), "-r", "q4", "--imatrix", importance, "-q")
        with open(importance, "r+b") as file:
            file.truncate(100000)
        self.refuses("quantize", MODEL, "-o", self.path("x.gguf"), "-r", "q4", "--imatrix", importance, "-q", code=1,
                     says="truncated")
        # Both formats hold the same numbers, but for the rounding of a product.
        out, _ = self.fathom("compare", self.path("gguf.gguf"), self.path("dat.gguf"), "--json", "--filter", "*exp*")
        for tensor in json.loads(out)["tensors"]:
            self.assertLess(tensor["error"]["relative_rms"], 0.01, tensor["name"])
        out, _ = self.fathom("compare", MODEL, self.path("gguf.gguf"), "--filter", "layers.*.experts.w1.weight")
        self.assertRegex(out.decode(), r"layers.7.ffn.experts.w1.weight +fp4 +Q4_K .* worst: expert \d+, 0\.0")
        self.refuses("compare", MODEL, MODEL, "--filter", "*.colour", code=1, says="no tensor matches")
        self.refuses("compare", MODEL, self.path("nothing"), code=1, says="nothing")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
