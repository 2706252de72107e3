package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/upstream"
)

// Servers watches which API servers stand behind the upstream, and which version they are. When
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
type Servers struct {
	leases  reflector[string] // their holders
	prober  *upstream.Prober  // for /version, of the address in the client configuration
	changed func(what string)
	log     *slog.Logger
	// started gets a value when an API server has started.
	started chan struct{}

	mu sync.Mutex
	// asked: /version was asked for, with whatever result.
	asked bool
	// said is what prober was told. mu does not guard it: one goroutine asks.
	said versions

	versionOnce sync.Once
}

// newServers returns Servers that call changed at each change. They do nothing until run runs. cfg has
// listproxy's own credentials.
func newServers(cfg *rest.Config, config Config, changed func(what string)) (*Servers, error) {
	prober, err := upstream.NewProber(cfg, versionTimeout)
	if err != nil {
		return nil, fmt.Errorf("cannot ask for the API server's version: %w", err)
	}
	leases, err := clientOf(cfg, 0, coordination.NewForConfigAndClient)
	if err != nil {
		return nil, fmt.Errorf("cannot watch the API servers' Leases: %w", err)
	}
	s := &Servers{
		prober:  prober,
		changed: changed,
		log:     config.Log,
		started: make(chan struct{}, 1),
		said:    versions{},
	}
	s.leases = reflector[string]{
		resource: "the API servers' leases",
		source:   serverLeases(leases.Leases(serverLeaseNamespace)),
		read:     readHolder,
		changed:  s.leaseChanged,
		refusal:  "the API servers' Leases may not be read: only /version tells that API servers changed",
		level:    slog.LevelWarn,
		grant:    "list and watch on leases.coordination.k8s.io in " + serverLeaseNamespace,
		log:      config.Log,
	}
	return s, nil
}

// run follows the Leases and asks for /version until ctx ends.
func (s *Servers) run(ctx context.Context) {
	var asking sync.WaitGroup
	asking.Go(func() { s.pollVersion(ctx) })
	defer asking.Wait()
	s.leases.run(ctx)
}

// Ready says whether a change would be noticed: the Leases are known; or they cannot be read, but
// /version was asked.
func (s *Servers) Ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases.ready() && (s.asked || !s.leases.isRefused())
}

// askAgain makes /version be asked for now: the server at the other end may be another one.
func (s *Servers) askAgain() {
	select {
	case s.started <- struct{}{}:
	default: // it will be
	}
}

// report logs a change, and calls changed.
func (s *Servers) report(what string, args ...any) {
	s.log.Info("the API servers behind the upstream changed: what is known is compared with what they answer",
		append([]any{"change", what}, args...)...)
	s.changed(what)
}
