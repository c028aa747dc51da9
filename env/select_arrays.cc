#include "env/select_arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace replicant::env {

SelectArrays::SelectArrays(std::unique_ptr<Environment> environment,
                           const std::vector<std::string>& names)
    : EnvironmentWrapper(std::move(environment)) {
  const ObservationSpec& all = inner().observation_spec();
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found =
        std::ranges::find(all.arrays, names[i], &ArraySpec::name);
    const auto end = names.begin() + static_cast<std::ptrdiff_t>(i);
    if (found == all.arrays.end() ||
        std::find(names.begin(), end, names[i]) != end) {
      std::vector<std::string> known;
      for (const ArraySpec& array : all.arrays) known.push_back(array.name);
      throw ConfigError(fmt::format(
          "task.observations: '{}' {}; allowed: {}", names[i],
          found == all.arrays.end() ? "is no array of the observation"
                                    : "is given twice",
          fmt::join(known, ", ")));
    }
    spec_.arrays.push_back(*found);
    const Piece piece{.begin = static_cast<size_t>(all.Offset(names[i])),
                      .size = static_cast<size_t>(found->shape.num_elements())};
    (found->dtype == DType::kU8 ? images_ : states_).push_back(piece);
  }
  spec_.frame_size = spec_.pixels_size();
  state_.resize(static_cast<size_t>(all.state_size()));
  frame_.resize(static_cast<size_t>(all.pixels_size()));
}

TimeStep SelectArrays::Reset(const ObservationBuffer& out) {
  CheckBuffer(out, spec_, "Reset");
  const TimeStep step = inner().Reset(All(out));
  Copy(out);
  return step;
}

TimeStep SelectArrays::Step(std::span<const double> action,
                            const ObservationBuffer& out) {
  CheckBuffer(out, spec_, "Step");
  const TimeStep step = inner().Step(action, All(out));
  Copy(out);
  return step;
}

void SelectArrays::Observe(const ObservationBuffer& out) {
  CheckBuffer(out, spec_, "Observe");
  inner().Observe(All(out));
  Copy(out);
}

ObservationBuffer SelectArrays::All(const ObservationBuffer& out) {
  ObservationBuffer all;
  if (!out.state.empty()) all.state = state_;
  // images are not stacked here, so that a frame is the whole observation
  if (!out.pixels.empty() || !out.frame.empty()) all.pixels = frame_;
  return all;
}

void SelectArrays::Copy(const ObservationBuffer& out) const {
  const auto copy = [](const std::vector<Piece>& pieces, const auto& from,
                       auto to) {
    if (to.empty()) return;
    auto next = to.begin();
    for (const Piece& piece : pieces) {
      next =
          std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(piece.begin),
                      piece.size, next);
    }
  };
  copy(states_, state_, out.state);
  copy(images_, frame_, out.pixels);
  copy(images_, frame_, out.frame);
}

}  // namespace replicant::env
