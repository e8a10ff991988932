// Package caching is PyTorch's CUDA caching allocator, decision for decision: the same requests on the same device give
// the same blocks, the same device calls, the same statistics and the same refusals as PyTorch 2.6.0. It serves from a
// cache of segments that it splits and coalesces; a segment is a region from Malloc (classic) or an address range into
// which pages are mapped as needed (expandable segments).
//
// In go a device and settings; out come blocks. It knows nothing of traces, properties or reports.
//
// Files, in the order of a request's way through them: settings (what can be set), rules (what differs by PyTorch
// version), round (sizes), alloc (the ladder), freeset and unmapped (where free and unmapped blocks are found), expandable
// (growth by pages), free (frees, uses on other streams, coalescing), release (giving memory back), pools (private pools), snapshot.
//
// Section numbers in comments refer to the behavioural specification of PyTorch 2.6.0's allocator that the project
// keeps beside its recorded decisions.
package caching
