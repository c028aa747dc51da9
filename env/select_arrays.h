#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "env/environment.h"

namespace replicant::env {

// Shows some arrays of an observation, in the given order; numbers and images
// keep separate buffers. Nothing else changes.
class SelectArrays : public EnvironmentWrapper {
 public:
  // Throws ConfigError, which lists the environment's arrays, for a name that
  // it does not have, and for a name given twice.
  SelectArrays(std::unique_ptr<Environment> environment,
               const std::vector<std::string>& names);

  const ObservationSpec& observation_spec() const override { return spec_; }
  TimeStep Reset(const ObservationBuffer& out) override;
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override;
  void Observe(const ObservationBuffer& out) override;

 private:
  // A stretch of the inner buffer that is copied, in the order of the result.
  struct Piece {
    size_t begin = 0;
    size_t size = 0;
  };

  // Buffers of all inner arrays, where `out` wants any.
  ObservationBuffer All(const ObservationBuffer& out);
  void Copy(const ObservationBuffer& out) const;

  ObservationSpec spec_;
  std::vector<Piece> states_, images_;
  std::vector<double> state_;
  std::vector<uint8_t> frame_;
};

}  // namespace replicant::env
