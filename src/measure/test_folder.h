// A folder of a test's own with a small /proc in it; it is removed at the end.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "measure/process_files.h"

namespace fathom::measure {

class TestFolder {
 public:
  TestFolder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              fmt::format("fathom_measure_{}_{}_{}", test->test_suite_name(), test->name(), ::getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~TestFolder() { std::filesystem::remove_all(folder_); }

  std::string root() const { return folder_.string(); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  void process(const ProcessStat& stat) const {
    write(fmt::format("proc/{}/stat", stat.pid),
          fmt::format("{} ({}) {} {} 1 1 0 -1 4194304 1 0 0 0 {} 0 {} 0 20 0 1 0 {} 1000 200\n", stat.pid,
                      stat.name, stat.state == ' ' ? 'S' : stat.state, stat.parent, stat.cpu_ticks,
                      stat.children_cpu_ticks, stat.started_ticks));
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace fathom::measure
