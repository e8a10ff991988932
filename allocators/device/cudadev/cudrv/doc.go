// Package cudrv stands in for libcuda at link time and opens the real one at run time. gorgonia.org/cu links against the driver
// and ends the process from an init function if there is no GPU; with this package in its place a program starts anywhere
// and can say what is missing.
//
// Every function of include/cuda.h is a C function here that passes the call on to libcuda.so.1, or to the library that the
// environment variable SHATTER_LIBCUDA names. cuInit always succeeds; if the driver's own did not, all other calls give its
// answer, and State tells why.
//
// The list of functions, calls.h, is made from the header: go test ./allocators/device/cudadev/cudrv -update
package cudrv
