package snapshot

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// busy is an upstream that refuses some requests and says when to come again.
type busy struct {
	*upstream
	refuses func(*http.Request) bool
	after   string
	refused int
}

// RoundTrip implements http.RoundTripper.
func (b *busy) RoundTrip(r *http.Request) (*http.Response, error) {
	if !b.refuses(r) {
		return b.upstream.RoundTrip(r)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused++
	return &http.Response{
		StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {b.after}}, Body: http.NoBody, Request: r,
	}, nil
}

// TestFeedsComeAgainWhenTheyAreToldTo, whether they learn, load or follow.
func TestFeedsComeAgainWhenTheyAreToldTo(t *testing.T) {
	for name, refuses := range map[string]func(*http.Request) bool{
		"learning": func(*http.Request) bool { return true },
		"loading":  func(r *http.Request) bool { return strings.Contains(r.URL.RawQuery, "sendInitialEvents") },
		"following": func(r *http.Request) bool {
			return strings.Contains(r.URL.RawQuery, "allowWatchBookmarks=true&resourceVersion=")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &busy{upstream: &upstream{revision: 9}, refuses: refuses, after: "40"}
				b.watch = func(uint64) []string { return []string{cut} }
				fed(t, b, 100*time.Second)
				if b.refused < 1 || b.refused > 3 {
					t.Errorf("asked %d times in 100s, told to wait for 40s", b.refused)
				}
			})
		})
	}
}
