#pragma once

#include <filesystem>

#include "env/task_registry.h"

namespace replicant::env {

// An example of a task of your own: a motor tilts a beam on which a cart rolls;
// the cart is to be held in the middle.
//   example-see_saw
// `model` is see_saw.xml next to this file.
TaskDefinition SeeSawTask(const std::filesystem::path& model);

}  // namespace replicant::env
