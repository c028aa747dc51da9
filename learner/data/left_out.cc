#include "learner/data/left_out.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace replicant::data {
namespace {

// Members of any extension are counted by it; further reasons share a count.
constexpr size_t kMaxReasons = 20;
constexpr const char* kOthers = "others";
constexpr size_t kMaxNames = 12;

}  // namespace

void LeftOutCounts::Add(const std::string& reason, const std::string& name,
                        bool is_loss) {
  Add({.reason = reason, .count = 1, .first = name, .is_loss = is_loss});
}

void LeftOutCounts::Add(const LeftOutCounts& other) {
  for (const LeftOut& one : other.all_) Add(one);
}

void LeftOutCounts::Add(const LeftOut& one) {
  auto found = std::ranges::find(all_, one.reason, &LeftOut::reason);
  if (found == all_.end() && all_.size() >= kMaxReasons) {
    found = std::ranges::find(all_, kOthers, &LeftOut::reason);
  }
  if (found != all_.end()) {
    found->count += one.count;
    found->is_loss = found->is_loss || one.is_loss;
    return;
  }
  all_.push_back(one);
  if (all_.size() > kMaxReasons) all_.back().reason = kOthers;
}

std::string DescribeLeftOut(const std::vector<LeftOut>& all) {
  std::string text;
  for (const LeftOut& one : all) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{}: {} ({})", one.reason, one.count, one.first);
  }
  return text;
}

std::string ListNames(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMaxNames);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(),
                      names.begin() + static_cast<ptrdiff_t>(shown), ", "));
  if (shown < names.size()) {
    text += fmt::format(" and {} more", names.size() - shown);
  }
  return text;
}

}  // namespace replicant::data
