#pragma once

#include <string>
#include <string_view>

namespace replicant::metrics {

// `text` with every byte that is not part of well-formed UTF-8 (RFC 3629)
// replaced by U+FFFD. Readers of event files, JSON and Prometheus text refuse a
// whole record for one bad byte, so all written text passes through here.
std::string ToValidUtf8(std::string_view text);

// `text` as one line of at most `columns` characters for a terminal: control
// characters, which could move the cursor, become spaces, and what does not
// fit is cut with a "…" at the end. A character counts as one column; wide
// (East Asian) and combining ones are not treated apart.
std::string FitToColumns(std::string_view text, int columns);

}  // namespace replicant::metrics
