#pragma once

namespace gpulift::testing_techniques {

/// Which of several builds of one technique this is: linked to it by number, so that its file is compiled once.
extern const int kVariant;

}  // namespace gpulift::testing_techniques
