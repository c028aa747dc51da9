#include "tests/engine/kernels/op_cases.h"

#include <cctype>

namespace replicant::testing {

std::vector<OpCase> AllOpCases() {
  std::vector<OpCase> cases;
  AddElementwiseCases(cases);
  AddRowCases(cases);
  AddImageCases(cases);
  AddUpdateCases(cases);
  // names of tests have letters, digits and underscores
  for (OpCase& c : cases) {
    for (char& letter : c.name) {
      if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
    }
  }
  return cases;
}

}  // namespace replicant::testing
