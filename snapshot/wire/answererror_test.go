package wire

import (
	"net/http"
	"testing"
	"time"
)

// TestRequestedPause: requestedPause returns the seconds of a Retry-After header, at most maxRetryAfter. It returns 0 if the
// header is empty or has anything but whole seconds.
func TestRequestedPause(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"":                              0,
		"1":                             time.Second,
		"30":                            30 * time.Second,
		"86400":                         maxRetryAfter,
		"-1":                            0,
		"soon":                          0,
		"99999999999999999999":          0,
		"Wed, 21 Oct 2026 07:28:00 GMT": 0,
	} {
		if got := requestedPause(http.Header{"Retry-After": {header}}); got != want {
			t.Errorf("requestedPause of %q: got %v, want %v", header, got, want)
		}
	}
}
