#include "replay/client/table_state.h"

#include <nlohmann/json.hpp>

namespace replicant::replay {

std::optional<TableState> ParseTableState(const std::string& status,
                                          const std::string& table) {
  try {
    const auto parsed = nlohmann::json::parse(status);
    for (const auto& one : parsed.at("tables")) {
      if (one.at("name").get<std::string>() != table) continue;
      return TableState{.mass = one.at("mass").get<double>(),
                        .size = one.at("size").get<int64_t>(),
                        // an older service does not report it
                        .min_size = one.value("min_size_to_sample", int64_t{1}),
                        .holds_writers_up = !one.at("insert_wait").is_null()};
    }
  } catch (const nlohmann::json::exception&) {
    // treat it as no answer
  }
  return std::nullopt;
}

}  // namespace replicant::replay
