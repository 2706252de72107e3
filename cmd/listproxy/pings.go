package main

import (
	"fmt"
	"os"
)

// ownPings returns the environment variables from which k8s.io/apimachinery/pkg/util/net takes the times of HTTP/2
// pings, in seconds: the time without a frame after which a ping is sent, and the time to wait for its answer. It
// takes them from nowhere else, and its defaults are 30 and 15.
//
// They are for connections of listproxy's own: of feeds, discovery, and watches of definitions and of RBAC. Until a
// half-open connection is closed, lists of its feeds are forwarded, and a changed definition or a revoked right goes
// unnoticed. Callers' requests have connections and times of their own (package proxy/upstream).
func ownPings() map[string]string {
	return map[string]string{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5",
		"HTTP2_PING_TIMEOUT_SECONDS":      "5",
	}
}

// setOwnPings sets those variables of [ownPings] that the environment does not have. It must be called before the
// first connection is made.
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
