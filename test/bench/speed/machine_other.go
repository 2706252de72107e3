//go:build !linux

package main

func machineKernel() string { return "unknown" }
func machineModel() string  { return "unknown" }
