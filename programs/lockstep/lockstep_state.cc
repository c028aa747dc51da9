#include "programs/lockstep/lockstep_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "base/error.h"
#include "base/tensor/safetensors.h"

namespace replicant::programs {
namespace {

constexpr const char* kActor = "actor";
constexpr const char* kEpisodes = "episodes";
constexpr const char* kWriters = "writers";
constexpr const char* kWaiting = "waiting";

std::string ActionsName(size_t environment) {
  return fmt::format("actions/{}", environment);
}

template <typename T>
NamedTensorView View(const std::string& name, const std::vector<T>& values) {
  return {name,
          TensorView(kDTypeOf<T>, Shape({static_cast<int64_t>(values.size())}),
                     values.data())};
}

// The elements of a tensor; `size` of them, or any number if it is negative.
template <typename T>
std::vector<T> ReadValues(const SafetensorsReader& reader,
                          const std::filesystem::path& path,
                          const std::string& name, int64_t size = -1) {
  const HostTensor tensor = reader.Read(name);
  if (tensor.dtype() != kDTypeOf<T> ||
      (size >= 0 && tensor.shape().num_elements() != size)) {
    throw IoError(fmt::format(
        "{}: '{}' is {}{}; the file is not the state of a lockstep training",
        path.string(), name, DTypeName(tensor.dtype()),
        tensor.shape().ToString()));
  }
  const std::span<const T> values = tensor.Span<T>();
  return {values.begin(), values.end()};
}

}  // namespace

void WriteLockstepState(const std::filesystem::path& path,
                        const LockstepState& state) {
  const std::vector<int64_t> actor = {state.actor.num_steps,
                                      state.actor.num_calls};
  std::vector<int64_t> episodes, writers;
  for (const auto& episode : state.actor.episodes) {
    episodes.push_back(episode.number);
  }
  for (const auto& writer : state.writers) {
    writers.push_back(static_cast<int64_t>(writer.episode));
    writers.push_back(static_cast<int64_t>(writer.sequence));
    writers.push_back(writer.num_sent);
  }
  const std::vector<int64_t> waiting(state.waiting.begin(),
                                     state.waiting.end());
  std::vector<NamedTensorView> tensors = {
      View(kActor, actor), View(kEpisodes, episodes), View(kWriters, writers),
      View(kWaiting, waiting)};
  for (size_t e = 0; e < episodes.size(); ++e) {
    tensors.push_back(View(ActionsName(e), state.actor.episodes[e].actions));
  }
  WriteSafetensors(path, tensors);
}

LockstepState ReadLockstepState(const std::filesystem::path& path) {
  const SafetensorsReader reader(path);
  LockstepState state;
  const auto actor = ReadValues<int64_t>(reader, path, kActor, 2);
  state.actor.num_steps = actor[0];
  state.actor.num_calls = actor[1];
  for (const int64_t number : ReadValues<int64_t>(reader, path, kEpisodes)) {
    const std::string name = ActionsName(state.actor.episodes.size());
    state.actor.episodes.push_back(
        {number, ReadValues<float>(reader, path, name)});
  }
  const auto writers = ReadValues<int64_t>(
      reader, path, kWriters,
      3 * static_cast<int64_t>(state.actor.episodes.size()));
  for (size_t i = 0; i < writers.size(); i += 3) {
    state.writers.push_back({static_cast<uint64_t>(writers[i]),
                             static_cast<uint64_t>(writers[i + 1]),
                             writers[i + 2]});
  }
  for (const int64_t id : ReadValues<int64_t>(reader, path, kWaiting)) {
    state.waiting.push_back(static_cast<uint64_t>(id));
  }
  return state;
}

}  // namespace replicant::programs
