// A shared library that needs another one, which lies where the loader does not look.
extern "C" int gpulift_testing_nothing();

extern "C" __attribute__((visibility("default"))) int gpulift_testing_needs() { return gpulift_testing_nothing(); }
