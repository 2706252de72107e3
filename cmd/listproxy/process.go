package main

import (
	"fmt"
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
func (o *options) tuneMemory(log *slog.Logger) {
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

// memoryLimit is a limit for the process that leaves room for the garbage of what may be stored.
// If what may be stored has no bound, the process has none either.
func memoryLimit(stored, compressed int64) int64 {
	if stored <= 0 || stored > math.MaxInt64/4 || compressed > math.MaxInt64/4 {
		return math.MaxInt64
	}
	return (stored+compressed)/100*(100+gcPercent) + otherMemory
}

// ownPings say when a connection of listproxy's own (feeds, discovery, watches of definitions and
// of RBAC) is given up on which nothing comes, in seconds: after so many without a frame the API
// server is asked whether it is there, and has so many to answer. Until then a feed on a half-open
// connection can only forward, and a changed definition or a revoked right is not heard of. Where
// something comes, nothing is asked.
//
// These variables are the way that k8s.io/apimachinery/pkg/util/net has for it, and the only one;
// its defaults are 30 and 15. Callers' requests have connections and times of their own (package
// proxy).
func ownPings() map[string]string {
	return map[string]string{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5",
		"HTTP2_PING_TIMEOUT_SECONDS":      "5",
	}
}

// setOwnPings must be called before the first connection is made. What the environment says already
// stays.
func setOwnPings() error {
	for name, seconds := range ownPings() {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, seconds); err != nil {
			return fmt.Errorf("when a dead connection to the API server is given up (%s): %w", name, err)
		}
	}
	return nil
}
