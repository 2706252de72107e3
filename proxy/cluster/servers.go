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
	// versionInterval is the shortest pause between two reads of /version. The longest is a fifth longer.
	versionInterval = 10 * time.Second
	// minChangeInterval is the shortest time between two reported changes of the version.
	minChangeInterval = 2 * time.Minute
	// minHolderAge is the time for which a holder must have been known at currentAt (see sameTimeline). A holder that was
	// first seen shortly before proves nothing, since its event may have been late: this process may have been suspended.
	minHolderAge = time.Minute
)

// serverMonitor reports when the API servers behind the upstream, or their versions, change. New servers and versions may
// write the same objects in other bytes (with other defaults, new fields, or another encoding), without an event about them.
//
// Each API server holds a Lease that is named after its host. What a restart changes depends on the version:
//
//	1.35 and later  the Lease is deleted at the end and at the start, and made again with another holder: two changes
//	                within a second
//	older versions  the Lease keeps its holder: only a change of /version is seen
//
// The Lease of a killed server that does not come back is deleted when it has expired, an hour later. That is a change, too.
//
// The first list of Leases is not reported. A broken watch of Leases is not a change, since the list that follows shows what
// the watch has missed. If neither Leases nor /version can be read, nothing is reported. Then the feeds of package snapshot
// still notice some changes, since each asks for the upstream's revision.
//
// serverMonitor is safe for concurrent use.
type serverMonitor struct {
	leases   reflector[string] // the holders of the Leases
	onChange func(what string)
	log      *slog.Logger
	// versionAPI reads /version. It uses a new connection each time, since a balancer chooses the server by connection.
	versionAPI *api
	// changesHolder means that the API server that last answered /version gives its Lease a new holder at each start.
	changesHolder atomic.Bool

	mu          sync.Mutex
	holderSince map[string]time.Time // when each holder of a Lease was first seen

	readMu   sync.Mutex
	lastRead leaseRead
}

// leaseRead is one read of the API servers' Leases.
type leaseRead struct {
	began     time.Time
	revisions map[string]uint64 // the revision at which each holder last wrote its Lease
	err       error
}

// newServerMonitor returns a serverMonitor that calls onChange for each change, once run runs. account and from have
// listproxy's own credentials.
func newServerMonitor(account *rest.Config, from *api, log *slog.Logger, onChange func(what string)) (*serverMonitor, error) {
	versionAPI, err := newAPI(upstream.WithoutConnectionReuse(account))
	if err != nil {
		return nil, err
	}
	s := &serverMonitor{versionAPI: versionAPI, onChange: onChange, log: log, holderSince: map[string]time.Time{}}
	s.leases = reflector[string]{
		resource: "the API servers' leases",
		from:     from,
		// One for each API server (k8s.io/kubernetes/pkg/controlplane/apiserver, server.go).
		path:           "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		labels:         "apiserver.kubernetes.io/identity=kube-apiserver",
		read:           readHolder,
		onChange:       s.leaseChanged,
		refusedWarning: "the API servers' Leases may not be read: only /version tells that API servers changed",
		needs:          "list and watch on leases.coordination.k8s.io in kube-system",
		log:            log,
	}
	return s, nil
}

// run follows the Leases and asks for /version until ctx ends.
func (s *serverMonitor) run(ctx context.Context) {
	var followers sync.WaitGroup
	followers.Go(func() { s.leases.run(ctx) })
	followers.Go(func() { s.followVersion(ctx) })
	followers.Wait()
}

// report logs a change, and calls onChange.
func (s *serverMonitor) report(what string) {
	s.log.Info("the API servers behind the upstream changed: what is in memory is compared with their answers", "change", what)
	s.onChange(what)
}

// readHolder returns the holder of a Lease, which stays the same when a Lease is renewed.
func readHolder(o *object) string { return o.Spec.HolderIdentity }

// leaseChanged records when the new holder of a Lease was first seen, and reports the change.
func (s *serverMonitor) leaseChanged(diff change[string]) {
	s.mu.Lock()
	if diff.before != nil {
		delete(s.holderSince, *diff.before)
	}
	if diff.after != nil {
		s.holderSince[*diff.after] = time.Now()
	}
	s.mu.Unlock()
	switch {
	case diff.first: // nothing to report
	case diff.after == nil:
		s.report("an API server has gone: " + diff.name)
	default:
		s.report("an API server has started: " + diff.name)
	}
}

// sameTimeline reports whether etcd still has the same history up to a revision. currentAt is the time at which a stream at
// this revision last sent something. etcd has another history if it was restored from an older backup since currentAt.
//
// Before etcd is restored, the API servers are stopped. An API server that starts again becomes a new holder of its Lease. So
// the history is the same if a Lease still has the holder that it had at currentAt, and was written at the revision or later.
// Either this API server has run all the time, or the backup has everything up to the revision.
//
// retry means that a Lease still has its holder, who may only have to write the Lease again: if same is false, it pays to
// ask again in a few seconds.
func (s *serverMonitor) sameTimeline(ctx context.Context, revision uint64, currentAt time.Time) (same, retry bool) {
	if !s.changesHolder.Load() {
		return false, false
	}
	leases := s.readLeases(ctx)
	if leases.err != nil {
		s.log.DebugContext(ctx, "the API servers' Leases cannot be read", "error", leases.err)
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for holder, written := range leases.revisions {
		if since, known := s.holderSince[holder]; known && currentAt.Sub(since) >= minHolderAge {
			same = same || written >= revision
			retry = true
		}
	}
	return same, retry
}

// readLeases reads the Leases. Concurrent calls share a read, but none gets a read that began before the call.
func (s *serverMonitor) readLeases(ctx context.Context) leaseRead {
	called := time.Now() // before the lock, so that this call shares a read that begins while it waits for the lock
	s.readMu.Lock()
	defer s.readMu.Unlock()
	if s.lastRead.began.After(called) {
		return s.lastRead
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	read := leaseRead{began: time.Now(), revisions: map[string]uint64{}}
	_, read.err = s.leases.from.list(ctx, s.leases.path, s.leases.labels, func(lease *object) {
		written, err := strconv.ParseUint(lease.Metadata.ResourceVersion, 10, 64)
		if holder := readHolder(lease); err == nil && holder != "" {
			read.revisions[holder] = written
		}
	})
	s.lastRead = read
	return read
}

// changesHolderAtStart reports whether a version of kube-apiserver gives its Lease a new holder at each start. Versions from
// 1.35 on do (k8s.io/component-helpers, apimachinery/lease).
func changesHolderAtStart(info version.Info) bool {
	parsed, err := utilversion.ParseGeneric(info.GitVersion)
	return err == nil && parsed.AtLeast(utilversion.MajorMinor(1, 35))
}

// followVersion reads /version every versionInterval until ctx ends.
func (s *serverMonitor) followVersion(ctx context.Context) {
	var tracker versionTracker
	for {
		const timeout = 5 * time.Second
		var answered version.Info
		if err := s.versionAPI.getJSON(ctx, "/version", timeout, &answered); err != nil {
			s.log.DebugContext(ctx, "the API server's /version cannot be read", "error", err)
		} else {
			s.changesHolder.Store(changesHolderAtStart(answered))
			if tracker.add(answered, time.Now()) {
				s.report("version " + answered.GitVersion + " answers")
			}
		}
		if !clock.Sleep(ctx, wait.Jitter(versionInterval, 0.2)) {
			return
		}
	}
}

// versionTracker finds changes in the versions that API servers behind one address answer.
type versionTracker struct {
	last      version.Info // the version of the last answer
	isPending bool         // the version has changed since the last report
	changedAt time.Time    // when a change was last reported; zero if none was
}

// add adds the version of an answer, and returns true if a change must be reported: once every minChangeInterval while two
// versions answer in turn, and a last time when only one version answers.
//
//	v1.36   the first: no change
//	v1.37   a change
//	v1.36   v1.37   v1.36  ...  no change for minChangeInterval
//	v1.37   a change, whichever answers
func (v *versionTracker) add(answered version.Info, now time.Time) bool {
	isFirst := v.last == version.Info{}
	if !isFirst && answered != v.last {
		v.isPending = true
	}
	v.last = answered
	if !v.isPending || now.Sub(v.changedAt) < minChangeInterval {
		return false
	}
	v.isPending = false
	v.changedAt = now
	return true
}
