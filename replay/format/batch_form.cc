#include "replay/format/batch_form.h"

#include <fmt/format.h>

namespace replicant::replay {

std::string ToString(const BatchForm& form) {
  return form.HasWindows() ? fmt::format("windows of {} steps", form.window)
                           : "n-step transitions";
}

}  // namespace replicant::replay
