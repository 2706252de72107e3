package main

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"
)

const (
	// gcPercent is the default of GOGC here. Stored objects are most of the heap and stay, so with Go's own 100 the
	// process would be twice as large, for nothing.
	gcPercent = 50
	// otherMemory is the memory for everything but stored objects: requests, connections, stacks.
	otherMemory = 512 << 20
	// Compressed lists may take an eighth (compressedPart) as much memory as stored objects may, in addition to it.
	// If stored objects have no bound, compressed lists may take compressedUnbounded.
	compressedPart      = 8
	compressedUnbounded = 256 << 20
	// Clients may have one connection for each connectionShare bytes of the process's memory limit. A connection
	// needs an eighth of that at most.
	connectionShare                   = 1 << 20
	leastConnections, mostConnections = 256, 20_000
)

// compressedBound returns the bound on compressed lists in bytes; stored is the bound on stored objects.
func compressedBound(stored int64) int64 {
	if stored <= 0 {
		return compressedUnbounded
	}
	return stored / compressedPart
}

// connectionBound returns the number of connections that clients may have; limit is the process's memory limit.
func connectionBound(limit int64) int {
	return int(min(max(limit/connectionShare, leastConnections), mostConnections))
}

// tuneMemory sets the garbage collector's percentage and the memory limit of the Go runtime, unless GOGC and
// GOMEMLIMIT are set. The limit is a soft one: near it, garbage is collected more often.
func (o *cacheOptions) tuneMemory(log *slog.Logger) {
	percent := 0
	if os.Getenv("GOGC") == "" {
		percent = gcPercent
		debug.SetGCPercent(percent)
	}
	limit := memoryLimit(o.bytes.Value())
	if limit < math.MaxInt64 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	log.Debug("memory", "limit", debug.SetMemoryLimit(-1), "gcPercent", percent)
}

// memoryLimit returns the memory limit of the process: the bound on stored objects, and room for garbage and
// everything else. Without a bound on stored objects there is no limit.
func memoryLimit(stored int64) int64 {
	if stored <= 0 || stored > math.MaxInt64/4 {
		return math.MaxInt64
	}
	return (stored+compressedBound(stored))/100*(100+gcPercent) + otherMemory
}
