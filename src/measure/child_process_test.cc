#include "measure/child_process.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <thread>

#include "measure/test_folder.h"

namespace fathom::measure {
namespace {

using namespace std::chrono_literals;

bool is_alive(pid_t pid) {
  const auto text = read_small_file(fmt::format("/proc/{}/stat", pid));
  const auto stat = text ? parse_process_stat(*text) : std::nullopt;
  return stat && stat->state != 'Z';
}

struct Child {
  TestFolder folder;
  std::unique_ptr<ChildProcess> process;

  explicit Child(const std::string& command) {
    auto started = ChildProcess::start(command, folder.path("log"));
    EXPECT_TRUE(started.ok()) << started.error().message;
    process = std::move(*started);
  }
  Result<void> wait_for(const std::string& text) {
    return process->wait_ready([&] { return process->log_tail().find(text) != std::string::npos; }, 600s);
  }
};

TEST(ChildProcess, RunsUntilItIsStopped) {
  Child child("echo 'it is' \"up\"; exec sleep 1000");
  ASSERT_TRUE(child.wait_for("it is up").ok());
  const pid_t pid = child.process->pid(), guardian = child.process->guardian_pid();
  EXPECT_TRUE(is_alive(pid));
  EXPECT_FALSE(child.process->ending().has_value());
  EXPECT_EQ(::getpgid(pid), pid);
  const ProcessUsage usage = child.process->usage();
  EXPECT_GT(usage.resident_bytes.value_or(0), 0);
  EXPECT_GE(usage.resident_peak_bytes.value_or(0), usage.resident_bytes.value_or(0));
  EXPECT_TRUE(usage.cpu_s.has_value());
  child.process->stop(600s);  // it ends at the first signal
  EXPECT_FALSE(is_alive(pid));
  EXPECT_FALSE(is_alive(guardian));
  EXPECT_EQ(child.process->ending(), "signal 15 (Terminated)");
  child.process->stop();
}

TEST(ChildProcess, ADeathIsToldWithTheEndOfTheLog) {
  TestFolder folder;
  const std::string log = folder.write("log", "of an earlier run\n");
  auto child = ChildProcess::start("echo loading; echo 'no such model' >&2; exit 7", log);
  ASSERT_TRUE(child.ok());
  const auto waited = (*child)->wait_ready([] { return false; }, 600s);
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(
      waited.error().message,
      fmt::format("the server ended with exit status 7; the end of its log ({}):\nloading\nno such model", log));
}

TEST(ChildProcess, ACommandThatDoesNotExistIsADeath) {
  Child child("exec /no/such/program");
  const auto waited = child.process->wait_ready([] { return false; }, 600s);
  ASSERT_FALSE(waited.ok());
  EXPECT_NE(waited.error().message.find("exit status 127"), std::string::npos) << waited.error().message;
  EXPECT_NE(waited.error().message.find("/no/such/program"), std::string::npos) << waited.error().message;
}

TEST(ChildProcess, ASignalIsNamed) {
  Child child("kill -SEGV $$");
  const auto waited = child.process->wait_ready([] { return false; }, 600s);
  ASSERT_FALSE(waited.ok());
  EXPECT_TRUE(waited.error().message.starts_with("the server ended with signal 11 (Segmentation fault)"))
      << waited.error().message;
}

TEST(ChildProcess, WaitingHasALimit) {
  Child child("exec sleep 1000");
  const auto waited = child.process->wait_ready([] { return false; }, 50ms);
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().message, "the server was not ready after 0.05 s; its log is empty");
}

TEST(ChildProcess, WhatIgnoresTheSignalIsKilled) {
  Child child("trap '' TERM; echo up; while :; do sleep 1; done");
  ASSERT_TRUE(child.wait_for("up").ok());
  const pid_t pid = child.process->pid();
  child.process->stop(50ms);
  EXPECT_FALSE(is_alive(pid));
  EXPECT_EQ(child.process->ending(), "signal 9 (Killed)");
}

pid_t number_after(const std::string& log, const std::string& name) {
  const size_t at = log.find(name);
  return at == std::string::npos ? -1 : std::stoi(log.substr(at + name.size()));
}

// Children in the group, and one that made itself a group and lost its parent.
constexpr const char* kFamily =
    "sleep 1000 & echo child=$!; (setsid sleep 1000 & echo orphan=$!); echo all; exec sleep 1000";

TEST(ChildProcess, LeavesNoDescendantBehind) {
  Child child(kFamily);
  ASSERT_TRUE(child.wait_for("all").ok());
  const std::string log = child.process->log_tail();
  const pid_t pids[] = {child.process->pid(), number_after(log, "child="), number_after(log, "orphan=")};
  for (const pid_t pid : pids) EXPECT_TRUE(is_alive(pid)) << log;
  child.process->stop(600s);
  for (const pid_t pid : pids) EXPECT_FALSE(is_alive(pid)) << log;
}

TEST(ChildProcess, NothingOutlivesAProgramThatIsKilled) {
  TestFolder folder;
  const pid_t program = ::fork();
  if (program == 0) {
    auto child = ChildProcess::start(kFamily, folder.path("log"));
    (void)(*child)->wait_ready([&] { return (*child)->log_tail().find("all") != std::string::npos; }, 600s);
    std::ofstream(folder.path("pids")) << "command=" << (*child)->pid() << "\n" << (*child)->log_tail() << "\n";
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(program, &status, 0), program);
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::string text = read_small_file(folder.path("pids")).value_or("");
  for (const char* name : {"command=", "child=", "orphan="}) {
    const pid_t pid = number_after(text, name);
    ASSERT_GT(pid, 0) << text;
    // Hangs if it is left behind; how long it takes is the machine's affair.
    while (is_alive(pid)) std::this_thread::sleep_for(5ms);
  }
}

TEST(ChildProcess, OutlivesTheThreadThatStartedIt) {
  std::unique_ptr<Child> child;
  std::thread([&] { child = std::make_unique<Child>("echo up; exec sleep 1000"); }).join();
  ASSERT_TRUE(child->wait_for("up").ok());
  EXPECT_FALSE(child->process->ending().has_value());
}

TEST(ChildProcess, TwoDoNotHoldEachOther) {
  Child first("echo up; exec sleep 1000");
  Child second("echo up; exec sleep 1000");
  const pid_t pid = first.process->pid();
  first.process.reset();
  EXPECT_FALSE(is_alive(pid));
  EXPECT_FALSE(second.process->ending().has_value());
}

// The signal comes before, while or after the command begins; it always ends it.
TEST(ChildProcess, CanBeStoppedAtItsFirstInstruction) {
  for (int round = 0; round < 20; ++round) {
    Child child("exec sleep 1000");
    child.process->stop(600s);
    EXPECT_EQ(child.process->ending(), "signal 15 (Terminated)");
  }
}

TEST(ChildProcess, NeedsALogThatCanBeWritten) {
  const auto child = ChildProcess::start("true", "/no/such/folder/log");
  ASSERT_FALSE(child.ok());
  EXPECT_EQ(child.error().message, "log /no/such/folder/log: No such file or directory");
}

TEST(ChildProcess, ShowsTheLastLines) {
  Child child("for n in 1 2 3 4 5; do echo line $n; done; exec sleep 1000");
  ASSERT_TRUE(child.wait_for("line 5").ok());
  EXPECT_EQ(child.process->log_tail(2), "line 4\nline 5");
  EXPECT_EQ(child.process->log_tail(5), "line 1\nline 2\nline 3\nline 4\nline 5");
  EXPECT_EQ(child.process->log_tail(50), "line 1\nline 2\nline 3\nline 4\nline 5");
}

TEST(FreePort, CanBeListenedOn) {
  const auto port = free_port();
  ASSERT_TRUE(port.ok());
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(*port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(socket);
  EXPECT_EQ(with_port("serve --port {port} --url http://x:{port}/", 81), "serve --port 81 --url http://x:81/");
  EXPECT_EQ(with_port("serve", 81), "serve");
}

TEST(OutputOf, ReadsWhatAProgramWrites) {
  EXPECT_EQ(output_of({"sh", "-c", "printf 'a b'; echo hidden >&2"}, 600s), "a b");
  EXPECT_FALSE(output_of({"sh", "-c", "echo x; exit 3"}, 600s).has_value());
  EXPECT_FALSE(output_of({"no-such-program-anywhere"}, 600s).has_value());
  EXPECT_FALSE(output_of({"sleep", "1000"}, 50ms).has_value());
  EXPECT_FALSE(output_of({}, 1s).has_value());
}

}  // namespace
}  // namespace fathom::measure
