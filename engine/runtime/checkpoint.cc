#include "engine/runtime/checkpoint.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/tensor/safetensors.h"
#include "base/utf8.h"
#include "engine/runtime/parameters.h"

namespace replicant::runtime {
namespace {

namespace stdfs = std::filesystem;

constexpr int64_t kFormat = 1;
// small: a few numbers and texts
constexpr uint64_t kMaxInfoSizeBytes = uint64_t{64} << 20;
constexpr const char* kVariablesFile = "variables.safetensors";
constexpr const char* kInfoFile = "checkpoint.json";

// JSON holds only UTF-8.
void CheckMetadata(const stdfs::path& folder, const CheckpointInfo& info) {
  for (const auto& [key, value] : info.metadata) {
    if (IsUtf8(key) && IsUtf8(value)) continue;
    throw InvalidArgument(fmt::format("{}: the metadata '{}' is not UTF-8",
                                      folder.string(), ToValidUtf8(key)));
  }
}

void WriteVariables(const stdfs::path& path, const HostVariables& variables) {
  std::vector<NamedTensorView> views;
  for (const auto& [name, value] : variables) {
    views.push_back({name, value.view()});
  }
  WriteSafetensors(path, views);
}

CheckpointInfo ReadInfo(const stdfs::path& path) {
  const std::string text = ReadFile(path, kMaxInfoSizeBytes);
  const auto fail = [&](const std::string& what) {
    throw IoError(fmt::format("{}: {}", path.string(), what));
  };
  const auto json = nlohmann::json::parse(text, nullptr, /*exceptions=*/false);
  if (!json.is_object()) fail("not a JSON object; the file is damaged");
  const auto number = [&](const char* key) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number_integer()) {
      fail(fmt::format("want a whole number as '{}'", key));
    }
    return found->get<int64_t>();
  };
  if (const int64_t format = number("format"); format != kFormat) {
    fail(fmt::format("format {}; this program reads format {}", format,
                     kFormat));
  }
  CheckpointInfo info{.step = number("step")};
  const auto metadata = json.find("metadata");
  if (metadata == json.end() || !metadata->is_object()) {
    fail("want an object as 'metadata'");
  }
  for (const auto& [key, value] : metadata->items()) {
    if (!value.is_string()) {
      fail(fmt::format("want a text as metadata '{}'", key));
    }
    info.metadata[key] = value.get<std::string>();
  }
  return info;
}

std::vector<std::string> NamesOf(const VariableStore& store) {
  std::vector<std::string> names;
  for (const auto& [name, variable] : store.variables()) names.push_back(name);
  return names;
}

// Sets the variables `names`, after all are read and checked.
CheckpointInfo Load(const stdfs::path& folder, Surplus surplus,
                    const std::vector<std::string>& names,
                    VariableStore& store) {
  CheckpointInfo info = ReadInfo(folder / kInfoFile);
  const stdfs::path path = folder / kVariablesFile;
  const HostVariables values =
      ReadVariables(SafetensorsReader(path), path.string(), store, surplus);
  for (const std::string& name : names) {
    if (!values.contains(name)) {
      throw IoError(fmt::format(
          "{}: lacks variable '{}' of the program; hint: it was written by "
          "another configuration",
          path.string(), name));
    }
  }
  for (const std::string& name : names) {
    store.Set(name, values.at(name).view());
  }
  return info;
}

}  // namespace

HostVariables CopyVariables(const VariableStore& store) {
  HostVariables values;
  for (const auto& [name, variable] : store.variables()) {
    values.emplace(name, store.Get(name));
  }
  return values;
}

void SaveCheckpoint(const stdfs::path& folder, const HostVariables& variables,
                    const CheckpointInfo& info) {
  if (stdfs::exists(folder)) {
    throw IoError(
        fmt::format("{}: already exists; a checkpoint is never overwritten",
                    folder.string()));
  }
  CheckMetadata(folder, info);
  stdfs::path parent = folder.parent_path();
  if (parent.empty()) parent = ".";
  MakeFolders(parent);
  const stdfs::path temporary = TemporaryPathOf(folder);
  std::error_code ignored;
  try {
    MakeFolders(temporary);
    WriteVariables(temporary / kVariablesFile, variables);
    const nlohmann::json json = {
        {"format", kFormat}, {"step", info.step}, {"metadata", info.metadata}};
    AtomicWriteFile(temporary / kInfoFile, json.dump(/*indent=*/2) + "\n");
    SyncFolder(temporary);
    if (rename(temporary.c_str(), folder.c_str()) != 0) {
      throw IoError::FromErrno("cannot rename to", folder, errno);
    }
    SyncFolder(parent);
  } catch (...) {
    stdfs::remove_all(temporary, ignored);
    throw;
  }
}

CheckpointInfo LoadCheckpoint(const stdfs::path& folder, VariableStore& store) {
  return Load(folder, Surplus::kRefuse, NamesOf(store), store);
}

CheckpointInfo LoadPartOfCheckpoint(const stdfs::path& folder,
                                    VariableStore& store) {
  return Load(folder, Surplus::kSkip, NamesOf(store), store);
}

CheckpointInfo LoadPartOfCheckpoint(const stdfs::path& folder,
                                    const std::vector<std::string>& names,
                                    VariableStore& store) {
  return Load(folder, Surplus::kSkip, names, store);
}

std::string FindDamage(const stdfs::path& folder) {
  try {
    ReadInfo(folder / kInfoFile);
    // opening checks the header, and the size of the file against it
    const SafetensorsReader reader(folder / kVariablesFile);
    return "";
  } catch (const IoError& e) {
    return e.what();
  }
}

CheckpointInfo ReadCheckpointInfo(const stdfs::path& folder) {
  return ReadInfo(folder / kInfoFile);
}

}  // namespace replicant::runtime
