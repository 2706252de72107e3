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

	// versionInterval is the shortest time between two reads of /version; the pause is up to a fifth longer.
	// versionTimeout bounds a read.
	versionInterval = 10 * time.Second
	versionTimeout  = 5 * time.Second
	// minVersionInterval is the shortest time between two changes of the version while two versions answer in turn.
	minVersionInterval = 2 * time.Minute
)

// servers watches the API servers behind the upstream, and their versions. When these change, the same objects may be
// written in other bytes from now on, without an event about them: with other defaults, new fields, or another
// encoding.
//
// Each API server holds a Lease, whose name is made from the host's name. kube-apiserver deletes it at the end and at
// the beginning, and makes a new one with another holder. So a restart is two changes within a second. Older versions
// use the Lease of their host again, with the same holder; then only /version shows a change. The Lease of a server
// that was killed and does not come back is collected when it has expired, an hour later. That is a change as well.
//
// The servers that are found first are not reported. A broken stream of Leases is no change: what it has missed shows
// when it is opened again. If neither Leases nor /version can be read, nothing is reported, since feeds themselves ask
// for the upstream's revision.
//
// It is safe for concurrent use.
type servers struct {
	leases  reflector[string] // their holders
	from    *api
	version *api // for /version, over a new connection each time, since a balancer chooses the server by connection
	changed func(what string)
	log     *slog.Logger
	// announcesStarts reports whether the version that answered last changes the holder of its Lease at each start.
	announcesStarts atomic.Bool

	mu sync.Mutex
	// since has the time at which each holder of a Lease was first read.
	since map[string]time.Time

	reading sync.Mutex
	last    leaseRead
}

// leaseRead is a list of the API servers' Leases that was sent at a time. revisions has the revision at which each
// holder last wrote its Lease.
type leaseRead struct {
	sent      time.Time
	revisions map[string]uint64
	err       error
}

// newServers returns servers that call changed at each change, once run runs. cfg and from have listproxy's own
// credentials.
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
	s.log.Info("the API servers behind the upstream changed: what is in memory is compared with their answers", "change", what)
	s.changed(what)
}

// readHolder returns the holder of a Lease, which stays the same when a Lease is renewed.
func readHolder(o *object) string { return o.Spec.HolderIdentity }

// leaseChanged notes the time since which a Lease has its holder, and reports the change.
func (s *servers) leaseChanged(c change[string]) {
	s.mu.Lock()
	if c.before != nil {
		delete(s.since, *c.before)
	}
	if c.after != nil {
		s.since[*c.after] = time.Now()
	}
	s.mu.Unlock()
	switch {
	case c.first:
	case c.after == nil:
		s.report("an API server has gone: " + c.name)
	default:
		s.report("an API server has started: " + c.name)
	}
}

const (
	// knownBefore is the time for which the holder of a Lease must have been known when a stream was last heard. Events
	// of Leases may come late, or after this process was suspended.
	knownBefore = time.Minute
	// leaseTimeout bounds a read of the Leases.
	leaseTimeout = 10 * time.Second
)

// sameTimeline reports whether etcd still has the history, up to a revision, that it had when a stream was last heard:
// it was not restored from an older backup meanwhile. Before etcd is restored the API servers are stopped, and at its
// start each becomes a new holder of its Lease. So the history is the same if a Lease has the same holder as before, and
// was written at that revision or later: either this server still runs, or the backup has everything up to that
// revision. soon reports whether there is such a holder, so that asking again in a few seconds may give true.
func (s *servers) sameTimeline(ctx context.Context, revision uint64, heard time.Time) (same, soon bool) {
	if !s.announcesStarts.Load() {
		return false, false
	}
	leases := s.read(ctx, time.Now())
	if leases.err != nil {
		s.log.DebugContext(ctx, "the API servers' Leases cannot be read", "error", leases.err)
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for holder, written := range leases.revisions {
		if since, known := s.since[holder]; known && heard.Sub(since) >= knownBefore {
			same = same || written >= revision
			soon = true
		}
	}
	return same, soon
}

// read returns a list of the Leases that was sent after asked. Concurrent calls share one.
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

// announcesStart reports whether kube-apiserver of a version deletes its Lease when it starts, and so becomes another
// holder. That is so from 1.35 on (k8s.io/component-helpers, apimachinery/lease).
func announcesStart(info version.Info) bool {
	parsed, err := utilversion.ParseGeneric(info.GitVersion)
	return err == nil && parsed.AtLeast(utilversion.MajorMinor(1, 35))
}

// followVersion reads /version every versionInterval until ctx ends.
func (s *servers) followVersion(ctx context.Context) {
	var seen versions
	for {
		var answered version.Info
		if err := s.version.read(ctx, "/version", versionTimeout, &answered); err != nil {
			s.log.DebugContext(ctx, "the API server's /version cannot be read", "error", err)
		} else {
			s.announcesStarts.Store(announcesStart(answered))
			if seen.add(answered, time.Now()) {
				s.report("version " + answered.GitVersion + " answers")
			}
		}
		if !clock.Sleep(ctx, wait.Jitter(versionInterval, 0.2)) {
			return
		}
	}
}

// versions finds changes of the version behind one address.
type versions struct {
	known version.Info // the first, or that of the last change
	since time.Time    // of the last change; zero if there was none
	mixed bool         // whether another version has answered since then
}

// add adds the version of an answer, and reports whether it is a change. While two versions answer in turn, there is a
// change every minVersionInterval, and a last one when only one answers.
//
//	v1.36   the first: no change
//	v1.37   a change
//	v1.36   v1.37   v1.36  ...  no change for minVersionInterval
//	v1.37   a change, whichever answers
func (v *versions) add(answered version.Info, now time.Time) bool {
	v.mixed = v.mixed || answered != v.known && !v.since.IsZero()
	if answered == v.known && !v.mixed || !v.since.IsZero() && clock.Age(v.since, now) < minVersionInterval {
		return false
	}
	first := v.known == version.Info{}
	v.known = answered
	v.mixed = false
	if !first {
		v.since = now
	}
	return !first
}
