#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "env/tasks/suite.h"

namespace replicant::env::testing {

// DOMAIN-TASK of all tasks of the suite: the parameters of a test that holds
// for each.
inline std::vector<std::string> TaskNames() {
  std::vector<std::string> names;
  for (const TaskDefinition& task : SuiteTasks()) names.push_back(task.name);
  return names;
}

// The name of such a test.
inline std::string TestName(const ::testing::TestParamInfo<std::string>& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace replicant::env::testing
