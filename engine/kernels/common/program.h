#pragma once

#include <span>

#include "engine/graph/attributes.h"
#include "engine/graph/scalar_program.h"

namespace replicant::kernels {

// The value of a program for one element of each input, computed in double.
// Each instruction's result is rounded to its dtype.
double EvaluateProgram(const graph::ScalarProgram& program,
                       std::span<const double> inputs);

// The attribute "activation" of a node, ready to apply; an empty function if
// the node has none.
class Activation {
 public:
  explicit Activation(const graph::Attributes& attributes) {
    if (attributes.Has("activation")) {
      program_ = attributes.Program("activation");
    }
  }

  double operator()(double x) const {
    if (program_.instructions.empty()) return x;
    return EvaluateProgram(program_, std::span(&x, 1));
  }

 private:
  graph::ScalarProgram program_;
};

}  // namespace replicant::kernels
