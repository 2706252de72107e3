package discovery

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
)

const (
	// versionEvery is the time between two reads of /version, and up to a fifth more.
	versionEvery = 10 * time.Second
	// versionTimeout bounds one read.
	versionTimeout = 5 * time.Second
	// versionMemory is how long a version counts as present after it was last read.
	versionMemory = 2 * time.Minute
)

// versions has when the API servers behind one address last said each version.
type versions map[version.Info]time.Time

// hear records the version that was read, and says what is new about that; "" if nothing. While two
// versions answer in turn, nothing is.
func (v versions) hear(said version.Info, now time.Time) (news string) {
	if _, known := v[said]; !known && len(v) > 0 {
		news = "version " + said.GitVersion + " answers"
	}
	v[said] = now
	for other, at := range v {
		if now.Sub(at) > versionMemory {
			delete(v, other)
			news = "version " + other.GitVersion + " answers no longer"
		}
	}
	return news
}

// pollVersion asks for /version again and again until ctx ends.
func (s *Servers) pollVersion(ctx context.Context) {
	for ctx.Err() == nil {
		s.lookAtVersion(ctx)
		select {
		case <-ctx.Done():
		case <-s.started:
		case <-time.After(wait.Jitter(versionEvery, 0.2)):
		}
	}
}

// lookAtVersion reads /version once. If there is no answer, that says nothing about the version.
func (s *Servers) lookAtVersion(ctx context.Context) {
	said, status, err := s.prober.Version(ctx)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/version answered %d", status)
	}
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	s.asked = true
	s.mu.Unlock()
	switch {
	case err == nil:
		if news := s.said.hear(said, time.Now()); news != "" {
			s.report(news)
		}
	case status == http.StatusForbidden:
		s.versionOnce.Do(func() {
			s.log.WarnContext(ctx, "the API server's /version may not be read: only Leases and discovery tell that API servers changed",
				"grant", "get on the non-resource URL /version", "error", err)
		})
	default:
		s.log.DebugContext(ctx, "the API server's /version cannot be read", "error", err)
	}
}
