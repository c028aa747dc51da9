#pragma once

#include <string>

#include "base/error.h"

namespace replicant::testing {

// The message of the E that `function` throws; "no exception" if it throws
// none. Another exception passes through and fails the test.
template <typename E = Error, typename Function>
std::string MessageOf(const Function& function) {
  try {
    function();
  } catch (const E& e) {
    return e.what();
  }
  return "no exception";
}

}  // namespace replicant::testing
