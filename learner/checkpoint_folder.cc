#include "learner/checkpoint_folder.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/fs.h"

namespace replicant::learner {
namespace {

constexpr std::string_view kPrefix = "step-";

// The step in "step-000000012000"; std::nullopt for any other name.
std::optional<int64_t> ParseName(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  const auto [parsed, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || parsed != end || step < 0) return std::nullopt;
  return step;
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::filesystem::path folder, int num_kept)
    : folder_(std::move(folder)), num_kept_(num_kept) {
  if (num_kept < 1) {
    throw InvalidArgument(fmt::format(
        "CheckpointFolder: {} checkpoints to keep; want at least 1", num_kept));
  }
  MakeFolders(folder_);
}

void CheckpointFolder::Save(const runtime::VariableStore& store,
                            const runtime::CheckpointInfo& info) {
  const std::filesystem::path path = PathOf(info.step);
  if (std::filesystem::exists(path)) return;
  runtime::SaveCheckpoint(path, store, info);
  std::vector<int64_t> steps = Steps();
  const size_t num_surplus =
      std::max(steps.size(), static_cast<size_t>(num_kept_)) -
      static_cast<size_t>(num_kept_);
  for (size_t i = 0; i < num_surplus; ++i) {
    std::error_code error;
    std::filesystem::remove_all(PathOf(steps[i]), error);
    if (error) {
      spdlog::warn("cannot remove the old checkpoint {}: {}",
                   PathOf(steps[i]).string(), error.message());
    }
  }
}

std::vector<int64_t> CheckpointFolder::Steps() const {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_, error)) {
    const auto step = ParseName(entry.path().filename().string());
    if (step) steps.push_back(*step);
  }
  if (error) {
    throw IoError::FromErrno("cannot list", folder_, error.value());
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::filesystem::path CheckpointFolder::PathOf(int64_t step) const {
  return folder_ / fmt::format("{}{:012}", kPrefix, step);
}

std::optional<runtime::CheckpointInfo> CheckpointFolder::LoadNewest(
    runtime::VariableStore& store) const {
  std::vector<int64_t> steps = Steps();
  std::exception_ptr first_error;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      return runtime::LoadCheckpoint(PathOf(*step), store);
    } catch (const IoError& error) {
      spdlog::warn("checkpoint of step {} is left out: {}", *step,
                   error.what());
      if (!first_error) first_error = std::current_exception();
    }
  }
  if (first_error) std::rethrow_exception(first_error);
  return std::nullopt;
}

}  // namespace replicant::learner
