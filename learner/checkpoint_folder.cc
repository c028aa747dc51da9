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

#include "base/config/load.h"
#include "base/error.h"
#include "base/fs.h"

namespace replicant::learner {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr const char* kManifestFile = "manifest.yaml";

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

Manifest Manifest::Read(config::Reader& reader) {
  Manifest c;
  reader.Field("step", &c.step, {0, INT64_MAX}, "training step");
  int64_t id = 0;
  reader.Field("id", &id, {0, INT64_MAX}, "of the parts elsewhere");
  c.id = static_cast<uint64_t>(id);
  reader.Field("seconds", &c.seconds, {0.0, 1e12}, "of training by then");
  reader.Field("epochs", &c.epochs, {0.0, 1e12},
               "passes over the data by then");
  reader.Field("input", &c.has_input, "whether the replay has a part");
  return c;
}

CheckpointFolder::CheckpointFolder(std::filesystem::path folder, int num_kept)
    : CheckpointReader(std::move(folder)), num_kept_(num_kept) {
  if (num_kept < 1) {
    throw InvalidArgument(fmt::format(
        "CheckpointFolder: {} checkpoints to keep; want at least 1", num_kept));
  }
  MakeFolders(folder_);
  RemoveStaleTemporaries(folder_);
}

void CheckpointFolder::Save(const runtime::HostVariables& variables,
                            const runtime::CheckpointInfo& info) {
  // an incomplete checkpoint of this step is useless once there is a new one
  Discard(info.step);
  runtime::SaveCheckpoint(PathOf(info.step), variables, info);
}

void CheckpointFolder::Complete(const Manifest& manifest) {
  AtomicWriteFile(
      ManifestOf(manifest.step),
      fmt::format(
          "# every part of this checkpoint is on the disk\n"
          "step: {}\nid: {}\ninput: {}\nseconds: {:.3f}\n"
          "{}",
          manifest.step, manifest.id, manifest.has_input, manifest.seconds,
          manifest.epochs ? fmt::format("epochs: {}\n", *manifest.epochs)
                          : ""));
  int num_kept = 0;
  const std::vector<int64_t> steps = AllSteps();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (!IsComplete(*step) || ++num_kept > num_kept_) Remove(*step);
  }
}

void CheckpointFolder::LeaveOut(int64_t step) const {
  std::error_code error;
  std::filesystem::remove(ManifestOf(step), error);
  if (error) {
    throw IoError::FromErrno("cannot remove", ManifestOf(step), error.value());
  }
}

std::string CheckpointFolder::FindDamage(
    int64_t step,
    const std::function<std::string(const Manifest&)>& find_damage) const {
  try {
    const Manifest manifest = ReadManifest(step);
    const std::string damage = runtime::FindDamage(PathOf(step));
    return damage.empty() ? find_damage(manifest) : damage;
  } catch (const Error& error) {
    return error.what();
  }
}

std::string CheckpointFolder::LeaveOutDamaged(
    const std::function<std::string(const Manifest&)>& find_damage) const {
  std::vector<std::pair<int64_t, std::string>> damaged;  // the newest first
  const std::vector<int64_t> steps = Steps();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string damage = FindDamage(*step, find_damage);
    if (!damage.empty()) {
      damaged.emplace_back(*step, damage);
      continue;
    }
    for (const auto& [left_out, why] : damaged) {
      spdlog::warn("checkpoint of step {} is left out: {}", left_out, why);
      LeaveOut(left_out);
    }
    return "";
  }
  return damaged.empty() ? "" : damaged.front().second;
}

void CheckpointFolder::Remove(int64_t step) const {
  std::error_code error;
  // the manifest goes first, so that no part looks like a complete checkpoint
  std::filesystem::remove(ManifestOf(step), error);
  if (!error) std::filesystem::remove_all(PathOf(step), error);
  if (error) {
    spdlog::warn("cannot remove the old checkpoint {}: {}",
                 PathOf(step).string(), error.message());
  }
}

std::vector<int64_t> CheckpointReader::AllSteps() const {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_, error)) {
    const auto step = ParseName(entry.path().filename().string());
    if (step) steps.push_back(*step);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw IoError::FromErrno("cannot list", folder_, error.value());
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<int64_t> CheckpointReader::Steps() const {
  std::vector<int64_t> steps = AllSteps();
  std::erase_if(steps, [this](int64_t step) { return !IsComplete(step); });
  return steps;
}

std::filesystem::path CheckpointReader::ManifestOf(int64_t step) const {
  return PathOf(step) / kManifestFile;
}

bool CheckpointReader::IsComplete(int64_t step) const {
  return std::filesystem::exists(ManifestOf(step));
}

Manifest CheckpointReader::ReadManifest(int64_t step) const {
  return config::Load<Manifest>(config::Document::FromFile(ManifestOf(step)))
      .config;
}

std::optional<Manifest> CheckpointReader::NewestManifest() const {
  const std::vector<int64_t> steps = Steps();
  if (steps.empty()) return std::nullopt;
  return ReadManifest(steps.back());
}

uint64_t CheckpointFolder::NextId() const {
  uint64_t last = 0;
  for (const int64_t step : Steps()) {
    try {
      last = std::max(last, ReadManifest(step).id);
    } catch (const Error& error) {
      spdlog::warn("checkpoint of step {}: {}", step, error.what());
    }
  }
  return last + 1;
}

std::filesystem::path CheckpointReader::PathOf(int64_t step) const {
  return folder_ / fmt::format("{}{:012}", kPrefix, step);
}

std::optional<runtime::CheckpointInfo> CheckpointReader::LoadNewest(
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
