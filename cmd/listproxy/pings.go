package main

import (
	"fmt"
	"os"
)

// ownPings returns the time for which a connection of listproxy's own (feeds, discovery, watches of
// definitions and of RBAC) may be silent before it is closed, in seconds: the time without a frame
// after which a ping is sent, and the time for its answer. Until then lists of a feed on a
// half-open connection are forwarded, and a changed definition or a revoked right goes unnoticed.
// While frames come, no ping is sent.
//
// k8s.io/apimachinery/pkg/util/net takes these times only from environment variables; its defaults
// are 30 and 15. Callers' requests have connections and times of their own (package proxy/upstream).
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
