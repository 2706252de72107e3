package main

import (
	"os"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestOwnPings: what the environment says comes first.
func TestOwnPings(t *testing.T) {
	for name := range ownPings() {
		t.Setenv(name, "")
	}
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "7")
	expect.NoError(t, setOwnPings())
	got := map[string]string{}
	for name := range ownPings() {
		got[name] = os.Getenv(name)
	}
	want := map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5", "HTTP2_PING_TIMEOUT_SECONDS": "7"}
	expect.Same(t, want, got)
}
