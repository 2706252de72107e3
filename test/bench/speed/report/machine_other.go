//go:build !linux

package report

func machineKernel() string { return "unknown" }
func machineModel() string  { return "unknown" }
