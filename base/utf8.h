#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Text in UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above
// U+10FFFF.
namespace replicant {

// Size in bytes of the character at the front of `text`; 0 if there is none.
size_t Utf8Size(std::string_view text);

bool IsUtf8(std::string_view text);

// `text` with every byte that is not part of a character replaced by U+FFFD.
// Readers of event files, JSON and Prometheus text refuse a whole record for
// one bad byte.
std::string ToValidUtf8(std::string_view text);

// The front of `text`: at most `max_bytes`, cut between two characters.
std::string_view Utf8Prefix(std::string_view text, size_t max_bytes);

}  // namespace replicant
