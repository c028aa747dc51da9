#pragma once

#include <string>

#include "core/base/error.h"

namespace replicant::testing {

// The message of the replicant::Error that `function` throws.
template <typename Function>
std::string MessageOf(const Function& function) {
  try {
    function();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace replicant::testing
