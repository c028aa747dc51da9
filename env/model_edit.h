#pragma once

#include <string>

#include "env/mujoco.h"

namespace replicant::env {

// Changes of a model before it is compiled, for TaskDefinition::edit. All throw
// InvalidArgument if the model has no element with that name.

// Returns the element with this type and name.
mjsElement& FindElement(mjSpec& spec, mjtObj type, const std::string& name);
mjsBody& FindBody(mjSpec& spec, const std::string& name);
mjsGeom& FindGeom(mjSpec& spec, const std::string& name);
// The default settings of the elements of a class, as mjs_add...() take them.
const mjsDefault* FindDefault(mjSpec& spec, const std::string& name);

// Removes the element with all its children.
void DeleteElement(mjSpec& spec, mjtObj type, const std::string& name);

// Aborts if the name is taken (a mistake in the edit).
void SetName(mjsElement* element, const std::string& name);

}  // namespace replicant::env
