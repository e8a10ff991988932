// Package record holds record_torch.py, which records the decisions of the PyTorch that is installed as a decision log, and the
// test that runs its tests.
package record
