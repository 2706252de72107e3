package cluster

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/upstream"
)

// serverMonitor reports when the API servers behind the upstream, or their versions, change. New servers and versions may
// write the same objects in other bytes (with other defaults, new fields, or another encoding), without an event about them.
//
// Each API server holds a Lease that is named after its host. What a restart changes depends on the version:
//
//	1.35 and later  the API server deletes its Lease when it ends and when it starts, and makes one with another holder: two
//	                changes within a second
//	older versions  the Lease keeps its holder: only a change of /version is seen
//
// The Lease of a killed server that does not come back is deleted when it has expired, an hour later. That is a change, too.
//
// The first list of Leases is not reported. A broken watch of Leases is not a change, since the list that follows shows what
// the watch has missed. If neither Leases nor /version can be read, nothing is reported. Then the feeds of package snapshot
// still notice if etcd was restored from a backup: after a break, each asks for the upstream's revision, and for the newest change.
//
// serverMonitor is safe for concurrent use.
type serverMonitor struct {
	leases   reflector[string] // the holders of the Leases
	onChange func(what string)
	log      *slog.Logger
	// versionAPI reads /version. It uses a new connection each time, since a balancer chooses the server by connection.
	versionAPI *api
	// newHolderAtStart means that the API server that last answered /version is 1.35 or later: each start gives its Lease a new
	// holder.
	newHolderAtStart atomic.Bool

	mu          sync.Mutex
	holderSince map[string]time.Time // when each holder of a Lease was first seen

	readMu   sync.Mutex
	lastRead leaseRead // the last read of readLeases
}

// newServerMonitor returns a serverMonitor. While run runs, it calls onChange for each change. account and from have listproxy's
// own credentials.
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
