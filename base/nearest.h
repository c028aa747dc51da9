#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace replicant {

// The number of single-character insertions, deletions, replacements and swaps
// of neighbours that turn `a` into `b` (optimal string alignment: no part is
// edited twice). O(a.size() * b.size()).
int EditDistance(std::string_view a, std::string_view b);

// The name that `given` most likely means: the one at the smallest edit
// distance, the first of equals. Empty if no name is within a third of the
// length of `given` (at least 2 edits, but never a whole word) and none begins
// with `given` (3 characters or more).
std::string NearestName(std::string_view given,
                        const std::vector<std::string>& names);

}  // namespace replicant
