package main

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"
)

const (
	// gcPercent is how much the heap may grow between two collections of garbage. What is stored
	// is most of the heap and stays, so Go's own 100 would double the process for nothing.
	gcPercent = 50
	// otherMemory is for all but what is stored: requests, connections, stacks.
	otherMemory = 512 << 20
)

// tuneMemory sets how the Go runtime uses memory, by the bounds on what is stored, unless GOGC or
// GOMEMLIMIT do. The limit is a soft one: near it garbage is collected more often.
func (o *cacheOptions) tuneMemory(log *slog.Logger) {
	percent := 0
	if os.Getenv("GOGC") == "" {
		percent = gcPercent
		debug.SetGCPercent(percent)
	}
	limit := memoryLimit(o.byteBound, o.compressedBound)
	if limit < math.MaxInt64 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	log.Debug("memory", "limit", debug.SetMemoryLimit(-1), "gcPercent", percent)
}

// memoryLimit returns a limit for the process that leaves room for the garbage of what may be
// stored. If storage has no bound, the process has none either.
func memoryLimit(stored, compressed int64) int64 {
	if stored <= 0 || stored > math.MaxInt64/4 || compressed > math.MaxInt64/4 {
		return math.MaxInt64
	}
	return (stored+compressed)/100*(100+gcPercent) + otherMemory
}
