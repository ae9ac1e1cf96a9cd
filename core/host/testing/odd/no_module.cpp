// A shared library without the entry point of a module.
extern "C" __attribute__((visibility("default"))) int gpulift_testing_nothing() { return 0; }
