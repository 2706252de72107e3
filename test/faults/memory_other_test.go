//go:build !linux

package faults

// memoryCases need what only Linux tells and does: see memory_linux_test.go.
func memoryCases() []faultCase { return nil }
