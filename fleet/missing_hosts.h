#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace replicant::fleet {

// Says which hosts of a run have not joined yet.
//
// Thread-safety: one thread.
class MissingHosts {
 public:
  struct Host {
    std::string label;  // for people: "array task 3"
    // The host's name when it joins, or the end of it: "_3" of "n5.1042_3".
    std::string name;
    bool is_end = false;
  };

  // `endpoint` is the address that the hosts were given.
  MissingHosts(std::vector<Host> expected, std::string endpoint,
               Clock::TimePoint start);

  // Given the names of the hosts that have joined, returns a line for the log,
  // or nothing. There is one line after kPatience and one every kInterval while
  // hosts are missing, and one when the last has joined. A host that has joined
  // once no longer counts as missing.
  std::optional<std::string> Update(const std::vector<std::string>& joined,
                                    Clock::TimePoint now);

  // Whether no host is missing any more.
  bool IsComplete() const { return missing_.empty(); }

  static constexpr Clock::Duration kPatience = std::chrono::seconds(15);
  static constexpr Clock::Duration kInterval = std::chrono::seconds(60);

 private:
  const size_t num_expected_;
  std::vector<Host> missing_;
  const std::string endpoint_;
  Clock::TimePoint next_line_;
  bool has_named_any_ = false;
};

}  // namespace replicant::fleet
