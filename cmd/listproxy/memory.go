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
	// otherMemory is the number of bytes for all that is not stored, compressed or garbage: requests, connections, stacks.
	otherMemory = 512 << 20
	// compressedDivisor gives the bound on compressed lists: they may take an eighth of the bound on stored objects, in
	// addition.
	compressedDivisor = 8
	// defaultCompressedBound is the bound on compressed lists, in bytes, if stored objects have no bound.
	defaultCompressedBound = 256 << 20
	// bytesPerConnection permits one connection of a client for each MiB of the memory limit. A connection takes at most 128
	// KiB, so all of them take at most an eighth of the limit.
	bytesPerConnection = 1 << 20
	// minConnections is the bound on connections if the memory limit is small.
	minConnections = 256
	// maxConnections is the bound on connections if the memory limit is large, or if there is none.
	maxConnections = 20_000
	// noMemoryLimit is the memory limit that the Go runtime reports if there is none.
	noMemoryLimit = math.MaxInt64
)

// tuneMemory sets the garbage collector's percentage unless the environment has GOGC, and the memory limit of the Go
// runtime unless it has GOMEMLIMIT. The limit is soft: near it, garbage is collected more often.
func (o *cacheOptions) tuneMemory(log *slog.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	limit := memoryLimit(o.maxBytes.Value())
	if limit < noMemoryLimit && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	log.Debug("memory", "limit", currentMemoryLimit())
}

// currentMemoryLimit returns the memory limit of the process in bytes, or noMemoryLimit.
func currentMemoryLimit() int64 {
	return debug.SetMemoryLimit(-1) // a negative argument changes nothing
}

// memoryLimit returns the memory limit in bytes for a bound on stored objects. Without a bound (0) it is noMemoryLimit. For 1
// GiB it is (1024 + 128) × 1.5 + 512 = 2240 MiB: objects, compressed lists, garbage (gcPercent) and otherMemory.
func memoryLimit(storedBound int64) int64 {
	if storedBound <= 0 || storedBound > math.MaxInt64/4 { // a larger bound would overflow below
		return noMemoryLimit
	}
	return (storedBound+compressedBound(storedBound))/100*(100+gcPercent) + otherMemory
}

// compressedBound returns the bound on compressed lists in bytes. storedBound is the bound on stored objects, or 0 if they
// have none.
func compressedBound(storedBound int64) int64 {
	if storedBound <= 0 {
		return defaultCompressedBound
	}
	return storedBound / compressedDivisor
}

// connectionBound returns the number of connections that clients may have in a process with this memory limit.
func connectionBound(limit int64) int {
	return int(min(max(limit/bytesPerConnection, minConnections), maxConnections))
}
