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
	// The bound on compressed lists is the bound on stored objects divided by compressedDivisor, and comes in addition
	// to it. If stored objects have no bound, it is maxCompressed bytes.
	compressedDivisor = 8
	maxCompressed     = 256 << 20
	// Clients may have one connection for each bytesPerConnection of the process's memory limit. A connection needs up
	// to an eighth of them.
	bytesPerConnection             = 1 << 20
	minConnections, maxConnections = 256, 20_000
)

// tuneMemory sets the garbage collector's percentage unless the environment has GOGC, and the memory limit of the Go
// runtime unless it has GOMEMLIMIT. The limit is soft: near it, garbage is collected more often.
func (o *cacheOptions) tuneMemory(log *slog.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	limit := memoryLimit(o.bytes.Value())
	if limit < math.MaxInt64 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	log.Debug("memory", "limit", currentMemoryLimit())
}

// currentMemoryLimit returns the memory limit of the process in bytes. SetMemoryLimit sets nothing if its argument is
// negative.
func currentMemoryLimit() int64 { return debug.SetMemoryLimit(-1) }

// memoryLimit returns the memory limit in bytes for a bound on stored objects: the bound, with room for compressed lists,
// for garbage (gcPercent of what lives) and for everything else. If storedBound is 0 there is no bound, and no limit.
func memoryLimit(storedBound int64) int64 {
	if storedBound <= 0 || storedBound > math.MaxInt64/4 { // more would overflow below
		return math.MaxInt64
	}
	return (storedBound+compressedBound(storedBound))/100*(100+gcPercent) + otherMemory
}

// compressedBound returns the bound on compressed lists in bytes. storedBound is that on stored objects; 0 is none.
func compressedBound(storedBound int64) int64 {
	if storedBound <= 0 {
		return maxCompressed
	}
	return storedBound / compressedDivisor
}

// connectionBound returns the number of connections that clients may have in a process with this memory limit.
func connectionBound(limit int64) int {
	return int(min(max(limit/bytesPerConnection, minConnections), maxConnections))
}
