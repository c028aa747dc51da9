#include "env/task.h"

#include <algorithm>

#include "base/check.h"

namespace replicant::env {

void ObservationWriter::Append(std::span<const double> values) {
  if (is_recording_) {
    REPLICANT_CHECK(!entries_.empty(), "Append before Begin");
    entries_.back().size += static_cast<int64_t>(values.size());
    return;
  }
  REPLICANT_CHECK_LE(position_ + values.size(), out_.size());
  std::copy(values.begin(), values.end(),
            out_.begin() + static_cast<std::ptrdiff_t>(position_));
  position_ += values.size();
}

void ObservationWriter::Scalar(const char* name, double value) {
  if (is_recording_) Record(name, /*row_size=*/-1);
  Append(value);
}

void ObservationWriter::Record(const char* name, int64_t row_size) {
  entries_.push_back({.name = name, .row_size = row_size, .size = 0});
}

ObservationSpec ObservationWriter::Spec() const {
  ObservationSpec spec;
  for (const Entry& entry : entries_) {
    Shape shape;
    if (entry.row_size == 0) {
      shape = Shape({entry.size});
    } else if (entry.row_size > 0) {
      REPLICANT_CHECK_EQ(entry.size % entry.row_size, 0);
      shape = Shape({entry.size / entry.row_size, entry.row_size});
    }
    spec.arrays.push_back(
        {.name = entry.name, .shape = shape, .dtype = DType::kF64});
  }
  return spec;
}

void ObservationWriter::Finish() const {
  REPLICANT_CHECK_EQ(position_, out_.size());
}

std::optional<double> Task::Termination(const Physics& /*physics*/) const {
  return std::nullopt;
}

}  // namespace replicant::env
