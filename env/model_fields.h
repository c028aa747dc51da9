#pragma once

#include <string>
#include <vector>

#include "base/tensor/tensor_view.h"
#include "env/mujoco.h"

namespace replicant::env {

// Arrays of mjModel by name, for resets that change them and files that contain
// them: "geom_pos" is [ngeom, 3] of f64, "geom_rgba" [ngeom, 4] of f32. An
// array of scalars has one dimension.
//
// Only floating-point arrays can be accessed. Integer arrays hold indices, and
// a wrong index would make MuJoCo read outside its memory.

// Valid while the model lives. Throws InvalidArgument, with the nearest name,
// if there is no such floating-point array.
MutableTensorView ModelField(mjModel& model, const std::string& name);

// All names that ModelField() knows, in the order of mjModel.
std::vector<std::string> ModelFieldNames(const mjModel& model);

// Replaces an array. Throws InvalidArgument, leaving the model unchanged, for
// an unknown name, another element type, another shape or a number that is not
// finite.
void SetModelField(mjModel& model, const std::string& name,
                   const TensorView& value);

// Compares two compiled models. Returns the name of the first size, option or
// array that differs, or "" if there is none. Paths of files may differ.
std::string FirstDifference(const mjModel& a, const mjModel& b);

}  // namespace replicant::env
