#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace replicant::replay {

// State of a table for a reader of several services.
struct TableState {
  double mass = 0.0;
  int64_t size = 0;
  int64_t min_size = 0;  // below it the table gives no item
  bool holds_writers_up = false;

  bool can_draw() const { return size > 0 && size >= min_size; }
};

// Parses the state from the JSON of a status reply (docs/replay_protocol.md);
// std::nullopt if the reply lacks the table or is malformed.
std::optional<TableState> ParseTableState(const std::string& status,
                                          const std::string& table);

}  // namespace replicant::replay
