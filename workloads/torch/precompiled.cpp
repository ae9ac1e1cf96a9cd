// Nothing but what holds LibTorch's precompiled headers, which take most of a file's compile time.
