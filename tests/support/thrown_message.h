#pragma once

#include <string>

namespace replicant::testing {

// What an E thrown by `function` says; "no exception" if there is none.
// Another exception passes through and fails the test.
template <typename E, typename Function>
std::string ThrownMessage(Function&& function) {
  try {
    function();
  } catch (const E& e) {
    return e.what();
  }
  return "no exception";
}

}  // namespace replicant::testing
