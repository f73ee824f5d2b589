// The observer of real measurements.
#pragma once

#include <memory>

#include "measure/disturbance.h"
#include "measure/protocol.h"

namespace fathom::measure {

/// Everything below this process is the measurement itself; other processes are company.
std::unique_ptr<Observer> observe_machine(const DisturbanceLimits& limits);

}  // namespace fathom::measure
