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
	// versionEvery is the time between two reads of /version, and up to a fifth more; versionAgain is
	// the time while there is more than one version, or may soon be.
	versionEvery = 10 * time.Second
	versionAgain = 2 * time.Second
	// versionTimeout bounds one read.
	versionTimeout = 5 * time.Second
	// versionMemory is how long a version counts as present after it was last read, if it was read in
	// turn with another. A version that was read before another, and not again, counts for
	// versionParting: its server may have been replaced, or not every read may reach it.
	versionMemory  = 2 * time.Minute
	versionParting = time.Minute
)

// versions is what the API servers behind one address said of their version.
type versions struct {
	latest version.Info
	// heard is when each version was last read.
	heard map[version.Info]time.Time
	// mixed is when a version was last read again after another.
	mixed time.Time
}

// hear records the version that was read, and reports whether it differs from the one before.
func (v *versions) hear(said version.Info, now time.Time) (changed bool) {
	changed = len(v.heard) > 0 && said != v.latest
	if v.heard == nil {
		v.heard = map[version.Info]time.Time{}
	}
	for other, at := range v.heard {
		if now.Sub(at) > versionMemory {
			delete(v.heard, other)
		}
	}
	if _, again := v.heard[said]; again && changed {
		v.mixed = now
	}
	v.latest = said
	v.heard[said] = now
	return changed
}

// unsettled reports whether API servers of more than one version may answer now, because they did
// lately. Then loading again after each change would only add load, since the other version will
// answer again.
func (v *versions) unsettled(now time.Time) bool {
	if !v.mixed.IsZero() && now.Sub(v.mixed) <= versionMemory {
		return true
	}
	for other, at := range v.heard {
		if other != v.latest && now.Sub(at) <= versionParting {
			return true
		}
	}
	return false
}

// pause is how long to wait before the next look.
func (v *versions) pause(now time.Time) time.Duration {
	if v.unsettled(now) {
		return versionAgain
	}
	return versionEvery
}

// pollVersion asks for /version again and again until ctx ends.
func (s *Servers) pollVersion(ctx context.Context) {
	for ctx.Err() == nil {
		s.lookAtVersion(ctx)
		select {
		case <-ctx.Done():
		case <-s.startedNow:
		case <-time.After(wait.Jitter(s.untilVersion(time.Now()), 0.2)):
		}
	}
}

// untilVersion is how long to wait before the next read: an API server that has just started may
// have another version, and get connections only later.
func (s *Servers) untilVersion(now time.Time) time.Duration {
	s.mu.Lock()
	started := s.started
	s.mu.Unlock()
	if !started.IsZero() && now.Sub(started) <= versionParting {
		return versionAgain
	}
	return s.said.pause(now)
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
	if err != nil {
		if status == http.StatusForbidden {
			s.versionOnce.Do(func() {
				s.log.WarnContext(ctx, "the API server's /version may not be read: only Leases and discovery tell that API servers changed",
					"grant", "get on the non-resource URL /version", "error", err)
			})
		} else {
			s.log.DebugContext(ctx, "the API server's /version cannot be read", "error", err)
		}
	}
	now, before := time.Now(), s.said.latest
	switch {
	case err == nil && s.said.hear(said, now):
		s.report("another version", "from", before.GitVersion, "to", said.GitVersion)
	case s.said.unsettled(now):
		// Also if nobody answered, for example while an API server is being replaced.
		s.changed("API servers of more than one version answer")
	}
}

const (
	// SlowestNews is the longest time from a change of version of the API servers behind one address
	// until listproxy notices it, if they answer. It includes the time of one more read, because an
	// answer that is on its way may be from before the change.
	SlowestNews = versionTimeout + versionEvery + versionEvery/5 + versionTimeout
	// SlowestLook is the longest time between two reads of /version of API servers behind one address,
	// while there is more than one version.
	SlowestLook = versionAgain + versionAgain/5 + versionTimeout
)

// LeastSettle is the shortest time for which all has to be forwarded after the API servers behind
// the upstream changed ([Config].Settle), in whole seconds.
//
// While two versions serve, that time begins again with every read. It must not be over before the
// next read has shown a version; otherwise something could be loaded from one version and followed
// at the other. So it is the longest time between two reads, which depends on who reads
// ([SlowestLook]), plus a second for the process to act.
func LeastSettle(slowest time.Duration) time.Duration {
	return (slowest + 2*time.Second - 1).Truncate(time.Second)
}
