package main

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"
)

const (
	// gcPercent replaces the default of GOGC, which is 100. Stored objects are most of the heap and live long. With 100
	// the heap could grow to twice their size before garbage is collected.
	gcPercent = 50
	// otherMemory is the number of bytes for everything but stored objects: requests, connections, stacks.
	otherMemory = 512 << 20
	// Compressed lists may take one compressedPart-th of the bound on stored objects, in addition to it. If stored
	// objects have no bound, compressed lists may take maxCompressed bytes.
	compressedPart = 8
	maxCompressed  = 256 << 20
	// Clients may have one connection for each connectionShare bytes of the process's memory limit. A connection needs
	// up to an eighth of that.
	connectionShare                = 1 << 20
	minConnections, maxConnections = 256, 20_000
)

// tuneMemory sets the garbage collector's percentage and the memory limit of the Go runtime, unless GOGC and
// GOMEMLIMIT are set. The limit is a soft one: near it, garbage is collected more often.
func (o *cacheOptions) tuneMemory(log *slog.Logger) {
	percent := 0 // 0 in the log: GOGC is set
	if os.Getenv("GOGC") == "" {
		percent = gcPercent
		debug.SetGCPercent(percent)
	}
	limit := memoryLimit(o.bytes.Value())
	if limit < math.MaxInt64 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	log.Debug("memory", "limit", currentMemoryLimit(), "gcPercent", percent)
}

// currentMemoryLimit returns the memory limit of the process in bytes. A negative number does not set it.
func currentMemoryLimit() int64 { return debug.SetMemoryLimit(-1) }

// memoryLimit returns the memory limit of the process in bytes: the bound on stored objects, with room for garbage and
// for everything else. If stored is 0 there is no bound, and no limit.
func memoryLimit(stored int64) int64 {
	if stored <= 0 || stored > math.MaxInt64/4 { // more would overflow below
		return math.MaxInt64
	}
	return (stored+compressedBound(stored))/100*(100+gcPercent) + otherMemory
}

// compressedBound returns the bound on compressed lists in bytes. stored is the bound on stored objects; 0 is none.
func compressedBound(stored int64) int64 {
	if stored <= 0 {
		return maxCompressed
	}
	return stored / compressedPart
}

// connectionBound returns the number of connections that clients may have. memoryLimit is the limit of the process.
func connectionBound(memoryLimit int64) int {
	return int(min(max(memoryLimit/connectionShare, minConnections), maxConnections))
}
