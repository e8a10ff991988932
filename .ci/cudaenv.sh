# Sourced: what a build with the tag cuda needs. The declarations are the project's own, so that no toolkit is needed and one
# that is installed does no harm. cgo wants an absolute path, and loses its default flags where CGO_CFLAGS is set.
export CGO_ENABLED=1
export CGO_CFLAGS="-O2 -g -I$PWD/allocators/device/cudadev/include"
