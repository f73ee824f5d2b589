#include "measure/machine_observer.h"

#include <unistd.h>

#include "measure/environment.h"

namespace fathom::measure {
namespace {

class MachineObserver final : public Observer {
 public:
  explicit MachineObserver(const DisturbanceLimits& limits) : limits_(limits) {}

  SystemUsage usage() override { return read_system_usage(); }
  void begin() override { before_ = sample_disturbance(); }
  Observation end() override {
    Disturbance seen =
        disturbance_between(before_, sample_disturbance(), {getpid()}, limits_, sysconf(_SC_CLK_TCK));
    return {.is_disturbed = seen.is_disturbed, .lines = std::move(seen.lines)};
  }

 private:
  DisturbanceLimits limits_;
  DisturbanceSample before_;
};

}  // namespace

std::unique_ptr<Observer> observe_machine(const DisturbanceLimits& limits) {
  return std::make_unique<MachineObserver>(limits);
}

}  // namespace fathom::measure
