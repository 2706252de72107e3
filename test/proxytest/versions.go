package proxytest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// VersionOf is what /version says of an API server.
func VersionOf(gitVersion string) string { return fmt.Sprintf(`{"gitVersion":%q}`, gitVersion) }

// BusyVersions is an API server, or several behind one address, that say in turn which versions
// they are. Now and then no answer comes, and the next one so late that it is almost given up.
type BusyVersions struct {
	Versions []string
	LateAt   string        // a path
	Patience time.Duration // for an answer
	asked    int
	missed   bool
}

// RoundTrip implements [http.RoundTripper].
func (b *BusyVersions) RoundTrip(r *http.Request) (*http.Response, error) {
	b.asked++
	late := time.Duration(0)
	switch {
	case r.URL.Path != b.LateAt:
	case b.missed:
		late, b.missed = b.Patience-time.Millisecond, false
	case rand.IntN(3) == 0:
		late, b.missed = b.Patience, true
	}
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(late):
	}
	body := io.NopCloser(strings.NewReader(VersionOf(b.Versions[b.asked%len(b.Versions)])))
	return &http.Response{StatusCode: http.StatusOK, Body: body, Header: http.Header{}, Request: r}, nil
}

// CloseIdleConnections is for whoever asks once.
func (*BusyVersions) CloseIdleConnections() {}
