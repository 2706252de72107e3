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
	// Compressed lists may take an eighth of the bound on what is stored, beside it; compressedUnbounded if there
	// is no bound.
	compressedPart      = 8
	compressedUnbounded = 256 << 20
	// Clients may have one connection for each connectionShare of the process's memory limit. A connection takes
	// an eighth of that at most.
	connectionShare                   = 1 << 20
	leastConnections, mostConnections = 256, 20_000
)

// compressedBound returns how many bytes of compressed lists are kept, by the bound on what is stored.
func compressedBound(stored int64) int64 {
	if stored <= 0 {
		return compressedUnbounded
	}
	return stored / compressedPart
}

// connectionBound returns the number of connections that clients may have, by the limit of the process's memory.
func connectionBound(limit int64) int {
	return int(min(max(limit/connectionShare, leastConnections), mostConnections))
}

// tuneMemory sets how the Go runtime uses memory, by the bounds on what is stored, unless GOGC or
// GOMEMLIMIT do. The limit is a soft one: near it garbage is collected more often.
func (o *cacheOptions) tuneMemory(log *slog.Logger) {
	percent := 0
	if os.Getenv("GOGC") == "" {
		percent = gcPercent
		debug.SetGCPercent(percent)
	}
	limit := memoryLimit(o.byteBound)
	if limit < math.MaxInt64 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	log.Debug("memory", "limit", debug.SetMemoryLimit(-1), "gcPercent", percent)
}

// memoryLimit returns a limit for the process that leaves room for the garbage of what may be
// stored. If storage has no bound, the process has none either.
func memoryLimit(stored int64) int64 {
	if stored <= 0 || stored > math.MaxInt64/4 {
		return math.MaxInt64
	}
	return (stored+compressedBound(stored))/100*(100+gcPercent) + otherMemory
}
