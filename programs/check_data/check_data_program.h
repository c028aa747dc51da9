#pragma once

#include <string>
#include <vector>

#include "programs/run/invocation.h"

namespace replicant::programs {

// What `check-data` has found.
struct DataReport {
  // Lines about each set: images, classes, what is left out, what cannot be
  // read, speed.
  std::string text;
  // Each is a sentence that names the key, the problem and the mend.
  std::vector<std::string> problems;
};

// Tries the images of a configuration: opens both sets as a run does, reads
// `max_images` of each (0: all), and compares the sets with each other and with
// the network. Throws ConfigError for a workload that learns from no images.
DataReport CheckData(const Invocation& invocation, int64_t max_images);

// The program "check-data CONFIG". Prints the report, then the problems;
// returns 1 if there are any.
Program CheckDataProgram();

}  // namespace replicant::programs
