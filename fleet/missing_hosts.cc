#include "fleet/missing_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace replicant::fleet {
namespace {

// Maximum hosts named in one line; an array may have thousands of tasks.
constexpr size_t kMostNames = 8;

}  // namespace

MissingHosts::MissingHosts(std::vector<Host> expected, std::string endpoint,
                           Clock::TimePoint start)
    : num_expected_(expected.size()),
      missing_(std::move(expected)),
      endpoint_(std::move(endpoint)),
      next_line_(start + kPatience) {}

std::optional<std::string> MissingHosts::Update(
    const std::vector<std::string>& joined, Clock::TimePoint now) {
  if (missing_.empty()) return std::nullopt;
  std::erase_if(missing_, [&](const Host& host) {
    return std::ranges::any_of(joined, [&](const std::string& name) {
      return host.is_end ? name.ends_with(host.name) : name == host.name;
    });
  });
  if (missing_.empty()) {
    if (!has_named_any_) return std::nullopt;
    return fmt::format("all {} hosts have joined", num_expected_);
  }
  if (now < next_line_) return std::nullopt;
  next_line_ = now + kInterval;
  has_named_any_ = true;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(missing_.size(), kMostNames); ++i) {
    names.push_back(missing_[i].label);
  }
  if (missing_.size() > kMostNames) {
    names.push_back(fmt::format("{} more", missing_.size() - kMostNames));
  }
  return fmt::format("{} of {} hosts have not joined at {} yet: {}",
                     missing_.size(), num_expected_, endpoint_,
                     fmt::join(names, ", "));
}

}  // namespace replicant::fleet
