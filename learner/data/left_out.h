#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace replicant::data {

// Files, or members of tar files, that a source has left out for one reason.
struct LeftOut {
  std::string reason;  // in the plural: "hidden files"
  int64_t count = 0;
  std::string first;  // the name of the first one
  // They may hold images that were meant to be read.
  bool is_loss = false;
};

// The reason of IsLeftByTools() (base/images/image_names.h).
inline constexpr const char* kHiddenFiles = "hidden files and folders";

// Counts what a source leaves out, by reason, in the order of the first ones.
class LeftOutCounts {
 public:
  void Add(const std::string& reason, const std::string& name, bool is_loss);
  // Adds the counts of a part that comes later.
  void Add(const LeftOutCounts& other);

  const std::vector<LeftOut>& all() const { return all_; }

 private:
  void Add(const LeftOut& one);

  std::vector<LeftOut> all_;
};

// "hidden files: 3 (._a.jpg), .gif files: 1 (b.gif)"; empty if there are none.
std::string DescribeLeftOut(const std::vector<LeftOut>& all);

// "a, b, c and 12 more".
std::string ListNames(const std::vector<std::string>& names);

}  // namespace replicant::data
