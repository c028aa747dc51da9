#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace replicant::testing {

// One of the plans that a library of host code offers for a problem. All give
// the same numbers.
struct HostCandidate {
  std::string name = "loops";
  // The time that events measure for a launch.
  double time_us = 1.0;
  // At least 1; all of it is written.
  size_t workspace_size_bytes = 192;
  // Whether launches throw.
  bool fails = false;
  // Whether launches throw within a capture.
  bool fails_in_capture = false;
};

// The candidates of a problem, the best first as the library reckons.
template <typename Problem>
using HostCandidates =
    std::function<std::vector<HostCandidate>(const Problem&)>;

// A library with one plan for every problem.
template <typename Problem>
std::vector<HostCandidate> OneCandidate(const Problem& /*problem*/) {
  return {{}};
}

}  // namespace replicant::testing
