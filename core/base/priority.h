#pragma once

namespace replicant {

// Has the calling thread, and those that it starts later, give way to others
// that want its processor: `levels` are added to its niceness (at most 19). On
// Linux that is a thread's own, and what waits for nothing else but a turn then
// interrupts hardly ever what is less nice; it runs where that rests.
//
// 0 changes nothing. Throws InvalidArgument for levels < 0.
void GiveWay(int levels);

}  // namespace replicant
