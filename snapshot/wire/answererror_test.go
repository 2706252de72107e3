package wire

import (
	"net/http"
	"testing"
	"time"
)

// TestRetryAfter: a pause is a number of seconds, within a bound; anything else is none.
func TestRetryAfter(t *testing.T) {
	for said, want := range map[string]time.Duration{
		"": 0, "1": time.Second, "30": 30 * time.Second, "86400": maxRetryAfter, "-1": 0, "soon": 0, "99999999999999999999": 0,
		"Wed, 21 Oct 2026 07:28:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {said}}); got != want {
			t.Errorf("%q: %v, want %v", said, got, want)
		}
	}
}
