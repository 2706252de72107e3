package main

import (
	"fmt"
	"os"
)

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
