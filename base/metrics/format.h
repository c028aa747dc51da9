#pragma once

#include <string>

// Readable numbers for a line that is rewritten.
namespace replicant::metrics {

// "7", "9999", "0.1235", "12.3k", "4.56M", "1.2e-05", "nan", "inf": whole
// numbers below 10000 exactly, others with three or four digits and the
// decimal prefix k, M, G or T.
std::string FormatQuantity(double value);

// "42s", "3m20s", "5h07m", "3d04h", rounded to the nearest second; "?" if it is
// not finite, negative or more than 999 days.
std::string FormatDuration(double duration_s);

}  // namespace replicant::metrics
