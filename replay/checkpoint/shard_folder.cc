#include "replay/checkpoint/shard_folder.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace replicant::replay {
namespace {

constexpr std::string_view kPrefix = "shard-";
constexpr std::string_view kOf = "-of-";
// made before any other file of a folder of checkpoints
constexpr const char* kLayoutName = "layout.yaml";

// Returns N of "shard-I-of-N"; std::nullopt for any other name.
std::optional<int64_t> NumShardsOf(const std::string& name) {
  const size_t of = name.rfind(kOf);
  if (!name.starts_with(kPrefix) || of == std::string::npos) {
    return std::nullopt;
  }
  int64_t number = 0;
  const char* const end = name.data() + name.size();
  const auto parsed =
      std::from_chars(name.data() + of + kOf.size(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return number;
}

}  // namespace

std::filesystem::path ShardFolder(const std::filesystem::path& folder,
                                  int64_t index, int64_t num_shards) {
  if (num_shards == 1) return folder;
  return folder / fmt::format("{}{}{}{}", kPrefix, index, kOf, num_shards);
}

void CheckNumShards(const std::filesystem::path& folder, int64_t num_shards) {
  const auto check = [&](int64_t found) {
    if (found == num_shards) return;
    throw ConfigError(fmt::format(
        "replay.shards: {}, but {} holds checkpoints of {}; a replay keeps the "
        "number of shards that it began with; hint: --set replay.shards={}, or "
        "choose another folder for a new replay",
        num_shards, folder.string(), found, found));
  };
  std::error_code error;
  if (std::filesystem::exists(folder / kLayoutName, error)) check(1);
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto found = NumShardsOf(entry.path().filename());
    if (found && std::filesystem::exists(entry.path() / kLayoutName)) {
      check(*found);
    }
  }
}

}  // namespace replicant::replay
