package cluster

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot/clock"
)

const (
	// API servers keep a Lease each, in this namespace and with this label
	// (k8s.io/kubernetes/pkg/controlplane/apiserver, server.go).
	serverLeases        = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	serverLeaseSelector = "apiserver.kubernetes.io/identity=kube-apiserver"

	// versionEvery is the time between two reads of /version, and up to a fifth more. versionTimeout bounds
	// one.
	versionEvery   = 10 * time.Second
	versionTimeout = 5 * time.Second
	// versionRest is the least time between two changes of the version, while two versions answer in turn.
	versionRest = 2 * time.Minute
)

// servers watches which API servers stand behind the upstream, and which version they are. When
// that changes, the same objects may be written in other bytes from now on, without any event
// about them: other defaults, new fields, another encoding.
//
// Each API server holds a Lease. Its name is made from the host's name, and its holder changes with
// every start: kube-apiserver deletes the Lease when it shuts down and when it starts, and makes a
// new one. Older versions use the Lease of the same host again and leave the holder as it is; then
// only /version shows a change. So a restart is seen as a change, twice within a second. A server that
// was killed and does not come back leaves its Lease to be collected when it has expired, an hour later:
// that is a change as well.
//
// The servers that are found first are not a change. If that is in the middle of a rolling upgrade,
// each server that is still to be replaced will be one. To lose the stream of the Leases is not a
// change either: what was missed shows when it is opened again. While neither the stream can be
// opened nor /version be read, nothing is told, since feeds themselves ask for the upstream's revision.
//
// It is safe for concurrent use.
type servers struct {
	leases  reflector[string] // their holders
	from    *api
	version *api // for /version, over a new connection each time: a balancer chooses by connection who answers
	changed func(what string)
	log     *slog.Logger
	// announcesStarts is set while the version that answered last changes the holder of its Lease at each start.
	announcesStarts atomic.Bool

	mu sync.Mutex
	// since is the time at which each holder of a Lease was first read.
	since map[string]time.Time

	reading sync.Mutex
	last    leaseRead
}

// leaseRead is what a list of the API servers' Leases had that was sent at a time: at which revision each holder wrote
// its Lease last.
type leaseRead struct {
	sent      time.Time
	revisions map[string]uint64
	err       error
}

// newServers returns servers that call changed at each change. They do nothing until run runs. cfg has
// listproxy's own credentials, and from as well.
func newServers(cfg *rest.Config, from *api, log *slog.Logger, changed func(what string)) (*servers, error) {
	version, err := newAPI(upstream.WithoutReuse(cfg))
	if err != nil {
		return nil, err
	}
	s := &servers{from: from, version: version, changed: changed, log: log, since: map[string]time.Time{}}
	s.leases = reflector[string]{
		resource: "the API servers' leases",
		from:     from, path: serverLeases, labels: serverLeaseSelector,
		read:    readHolder,
		changed: s.leaseChanged,
		refusal: "the API servers' Leases may not be read: only /version tells that API servers changed",
		grant:   "list and watch on leases.coordination.k8s.io in kube-system",
		log:     log,
	}
	return s, nil
}

// run follows the Leases and asks for /version until ctx ends.
func (s *servers) run(ctx context.Context) {
	var asking sync.WaitGroup
	asking.Go(func() { s.followVersion(ctx) })
	defer asking.Wait()
	s.leases.run(ctx)
}

// report logs a change, and calls changed.
func (s *servers) report(what string) {
	s.log.Info("the API servers behind the upstream changed: what is known is compared with what they answer", "change", what)
	s.changed(what)
}

// readHolder returns who holds a Lease. Mostly a Lease is renewed, which is no change.
func readHolder(o *object) string { return o.Spec.HolderIdentity }

// leaseChanged notes who holds Leases since when, and reports a change.
func (s *servers) leaseChanged(c change[string]) {
	s.mu.Lock()
	if c.was != nil {
		delete(s.since, *c.was)
	}
	if c.is != nil {
		s.since[*c.is] = time.Now()
	}
	s.mu.Unlock()
	switch {
	case c.first:
	case c.is == nil:
		s.report("an API server took its leave: " + c.name)
	default:
		s.report("an API server announced itself: " + c.name)
	}
}

const (
	// knownBefore is the time that the holder of a Lease must have been known before a stream was last heard, to have been
	// there before the stream broke: what comes late, or after this process was suspended, must not count.
	knownBefore = time.Minute
	// leaseTimeout bounds a read of the Leases.
	leaseTimeout = 10 * time.Second
)

// sameTimeline reports whether the timeline up to a revision is the one that was known when a stream was last heard. Whoever
// restores etcd stops the API servers first, and each announces its start with a new holder of its Lease. So the timeline
// is the same if a Lease has the holder that it had before, and was written at that revision or later: either this
// server still runs, or the backup that was restored has all up to there. With mayBe, a holder is the same that will
// write its Lease in the next seconds.
func (s *servers) sameTimeline(ctx context.Context, revision uint64, heard time.Time) (same, mayBe bool) {
	if !s.announcesStarts.Load() {
		return false, false
	}
	now := s.read(ctx, time.Now())
	if now.err != nil {
		s.log.DebugContext(ctx, "the API servers' Leases cannot be read", "error", now.err)
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for holder, written := range now.revisions {
		if since, known := s.since[holder]; known && heard.Sub(since) >= knownBefore {
			same, mayBe = same || written >= revision, true
		}
	}
	return same, mayBe
}

// read lists the Leases. All who ask at the same time share one list, which is sent after they asked.
func (s *servers) read(ctx context.Context, asked time.Time) leaseRead {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.last.sent.After(asked) {
		return s.last
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	read := leaseRead{sent: time.Now(), revisions: map[string]uint64{}}
	_, read.err = s.from.list(ctx, serverLeases, serverLeaseSelector, func(lease *object) {
		written, err := strconv.ParseUint(lease.Metadata.ResourceVersion, 10, 64)
		if holder := readHolder(lease); err == nil && holder != "" {
			read.revisions[holder] = written
		}
	})
	s.last = read
	return read
}

// announces reports whether kube-apiserver of a version deletes its Lease when it starts, and so becomes another
// holder: from 1.35 on (k8s.io/component-helpers, apimachinery/lease).
func announces(of version.Info) bool {
	parsed, err := utilversion.ParseGeneric(of.GitVersion)
	return err == nil && parsed.AtLeast(utilversion.MajorMinor(1, 35))
}

// followVersion asks for /version again and again until ctx ends.
func (s *servers) followVersion(ctx context.Context) {
	var answered versions
	for {
		var said version.Info
		if err := s.version.read(ctx, "/version", versionTimeout, &said); err != nil {
			s.log.DebugContext(ctx, "the API server's /version cannot be read", "error", err)
		} else {
			s.announcesStarts.Store(announces(said))
			if answered.hear(said, time.Now()) {
				s.report("version " + said.GitVersion + " answers")
			}
		}
		if !clock.Sleep(ctx, wait.Jitter(versionEvery, 0.2)) {
			return
		}
	}
}

// versions says when the version behind one address changes.
type versions struct {
	known version.Info // the first, or since the last change
	since time.Time    // when the last change was; zero: there was none
	mixed bool         // another version has answered since then, too
}

// hear takes in the version that was said, and says whether that is a change. While two versions answer
// in turn, there is one every versionRest, and a last one when they are done.
//
//	v1.36   the first, no change
//	v1.37   a change
//	v1.36   v1.37   v1.36  ...  for versionRest: none
//	v1.37   a change, whichever answers
func (v *versions) hear(said version.Info, now time.Time) bool {
	v.mixed = v.mixed || said != v.known && !v.since.IsZero()
	if said == v.known && !v.mixed || !v.since.IsZero() && clock.Age(v.since, now) < versionRest {
		return false
	}
	first := v.known == version.Info{}
	v.known, v.mixed = said, false
	if !first {
		v.since = now
	}
	return !first
}
