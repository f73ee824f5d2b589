#include "measure/local_target.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure/json_lines.h"

namespace fathom::measure {
namespace {

using nlohmann::json;

/// A process that speaks as a worker does, in Python; its socket is the last argument.
std::unique_ptr<Target> worker(const std::string& program) {
  const std::string begin =
      "import json, os, socket, sys, time\n"
      "line = socket.socket(fileno=int(sys.argv[-1])).makefile('rw')\n"
      "def say(value): line.write(json.dumps(value) + '\\n'); line.flush()\n"
      "ready = {'ready': {'engine': 'e', 'model': 'm', 'pack_path': 'p', 'details': 'd'}}\n";
  return make_local_target({.command = {"python3", "-c", begin + program}});
}

GenerateRequest request() {
  GenerateRequest request;
  request.prompt_ids = {1, 2, 3};
  request.max_tokens = 2;
  return request;
}

TEST(LocalTarget, TakesWhatTheWorkerSays) {
  const auto target = worker(
      "say(ready)\n"
      "asked = json.loads(line.readline())\n"
      "say({'sent_ns': 10, 'prefill_end_ns': 20, 'token_ns': [21, 30], 'ended_ns': 31, 'ids': asked['ids'][:2],\n"
      "     'text': 'ab', 'finish_reason': 'length', 'prompt_tokens': 3, 'cached_tokens': 1})\n"
      "line.readline()\n");
  const Result<TargetInfo> info = target->start();
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->engine + info->model + info->pack_path + info->details, "empd");
  const Generation seen = target->generate(request());
  EXPECT_EQ(seen.error, "");
  EXPECT_EQ(seen.ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(seen.token_ns, (std::vector<int64_t>{21, 30}));
  EXPECT_EQ(*seen.prefill_end_ns, 20);
  EXPECT_EQ(*seen.claimed_cached_tokens, 1);
}

TEST(LocalTarget, AWorkerThatDiesSaysHowAndWithWhichWords) {
  const auto dead = worker("sys.stderr.write('fathom: no such pack\\n'); sys.exit(3)");
  const Result<TargetInfo> info = dead->start();
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.error().message, "the measured process ended with exit code 3: fathom: no such pack");

  const auto killed = worker("say(ready); line.readline(); os.kill(os.getpid(), 9)");
  ASSERT_TRUE(killed->start().ok());
  const Generation seen = killed->generate(request());
  EXPECT_NE(seen.error.find("the measured process ended with signal 9"), std::string::npos) << seen.error;
  EXPECT_TRUE(seen.token_ns.empty());
  EXPECT_EQ(killed->generate(request()).error, "the target does not run");

  EXPECT_EQ(worker("say({'error': 'out of memory'})")->start().error().message, "out of memory");
  EXPECT_NE(make_local_target({.command = {"/no/such/program"}})->start().error().message.find("exit code 127"),
            std::string::npos);
}

TEST(LocalTarget, ALateAnswerIsNotTakenForTheNextOne) {
  const auto target = worker("say(ready); line.readline(); time.sleep(3); say({'late': 1}); line.readline()");
  ASSERT_TRUE(target->start().ok());
  GenerateRequest impatient = request();
  impatient.time_limit = std::chrono::seconds(1);
  EXPECT_EQ(target->generate(impatient).error, "no answer within 1 s");
  EXPECT_EQ(target->generate(request()).error, "the target does not run");
  EXPECT_TRUE(target->start().ok());
}

TEST(LocalTarget, OtherAnswersAreErrors) {
  const auto target = worker("say(ready); line.readline(); say({'ids': 'none'}); line.readline()");
  ASSERT_TRUE(target->start().ok());
  EXPECT_NE(target->generate(request()).error.find("answered something else"), std::string::npos);
}

TEST(JsonLines, CutWhereLinesEndWhateverComesTogether) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  JsonLines lines(ends[0]);
  const std::string sent = "{\"a\": 1}\n[2]\nnot";
  ASSERT_EQ(write(ends[1], sent.data(), sent.size()), static_cast<ssize_t>(sent.size()));
  EXPECT_EQ(**lines.read(std::chrono::seconds(60)), json({{"a", 1}}));
  EXPECT_EQ(**lines.read(std::chrono::seconds(60)), json({2}));
  EXPECT_EQ(lines.read(std::chrono::milliseconds(1)).error().code, ErrorCode::kBusy);
  ASSERT_EQ(write(ends[1], " json\n", 6), 6);
  EXPECT_EQ(lines.read(std::chrono::seconds(60)).error().code, ErrorCode::kIo);
  close(ends[1]);
  EXPECT_FALSE(lines.read(std::chrono::seconds(60))->has_value());
  EXPECT_FALSE(lines.write({{"nobody", "reads"}}).ok());
  close(ends[0]);
}

}  // namespace
}  // namespace fathom::measure
