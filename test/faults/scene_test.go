package faults

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// scene is everything around one case.
type scene struct {
	*testing.T
	*load.Load // with the Ledger, the Tally, the Verifier and the Bound
	plane      *controlplane.ControlPlane
	servers    []*controlplane.APIServer // those besides the plane's first one
	direct     *ask.Client               // to the plane's first API server

	hop           *hop.Hop
	upstream      *rest.Config  // listproxy's: the hop, or the apiBalancer
	apiBalancer   *hop.Balancer // before API servers; nil in most cases
	program       string        // the path of listproxy
	args          []string      // further arguments of listproxy
	proxies       *harness.Replicas
	proxied       *ask.Client // to the replicas
	proxiedConfig *rest.Config

	namespaces []string
	// firstRevision is etcd's revision before the first listproxy started: no listproxy knows an older one.
	firstRevision uint64
	// compactedRevision is the revision at which etcd was last compacted.
	compactedRevision uint64
	faultWindow       load.Window // of the last fault
	writesFleeting    atomic.Bool // fleeting objects are written

	// A goroutine that writes or asks holds one of these locks for reading while it does so. Whoever takes the lock for writing
	// waits until these goroutines are done, and pauses them until Unlock.
	pauseWrites     sync.RWMutex // for each write
	pauseAsks       sync.RWMutex // for questions, from the choice of a revision to the last answer that depends on it
	pauseAnyVersion sync.RWMutex // for each question of askAnyVersion; only TestSoak pauses these, in its rests

	followers     []follower
	stopFollowers context.CancelFunc
	watchHits     atomic.Int64 // watches from memory of the current followers
	fleetingHits  atomic.Int64 // watches from memory of fleeting objects, of all followers so far
}

// newScene waits for a place on a stage, and prepares a case there. program is the path of the listproxy that the case starts
// later.
func newScene(t *testing.T, place *stage, name, program string) *scene {
	leave, err := place.enter(context.WithoutCancel(t.Context())) // the control plane outlives this case
	t.Cleanup(leave)
	expect.NoError(t, err)
	plane := place.plane
	s := &scene{T: t, plane: plane, servers: place.servers, program: program}
	name = strings.ReplaceAll(name, "_", "-")
	s.namespaces = []string{name, name + "-b"}
	s.direct = ask.MustNew(t, plane.RESTConfig(controlplane.Admin), requestTimeout)
	s.Load = load.New(s.direct)
	s.must(s.populate(t.Context()))
	t.Cleanup(s.deleteAll)

	s.hop = hop.Run(t, plane.URL(), plane.CA(), hop.Odd{})
	s.upstream = s.hop.RESTConfig(plane.RESTConfig(controlplane.Feed))
	if place == brokenStage {
		t.Cleanup(s.repairPlane)
	}
	s.proxies = harness.NewReplicas(t)
	t.Cleanup(func() { s.proxies.Stop(t) })
	s.proxiedConfig = s.proxies.Through(plane.RESTConfig(controlplane.Admin))
	s.proxied = ask.MustNew(t, s.proxiedConfig, requestTimeout)
	return s
}

// faultBegins begins the fault's window. What a case does before is preparation.
func (s *scene) faultBegins() {
	s.faultWindow = load.Window{From: time.Now()}
	s.writesFleeting.Store(true)
}

// faultEnds ends the fault's window now. A fault that goes on for longer calls it again, and the last call counts.
func (s *scene) faultEnds() { s.faultWindow.To = time.Now() }

// must ends the test if err is not nil.
func (s *scene) must(err error) {
	s.Helper()
	expect.NoError(s, err)
}

// startListproxy starts one more replica, and adds it to the balancer before the replicas once it is ready.
func (s *scene) startListproxy() {
	s.Helper()
	if s.firstRevision == 0 {
		now, err := s.plane.EtcdRevision(s.Context())
		s.must(err)
		s.firstRevision = uint64(now) // #nosec G115 -- a revision
	}
	args := append([]string{"--staleness-bound", s.Bound.String(), "--consistent-lists=always", "--watches"}, s.args...)
	_, err := s.proxies.Start(s.Context(), harness.ProxyOptions{Upstream: s.upstream, Binary: s.program, Args: args})
	s.must(err)
}

// firstProxy returns the replica that has run for the longest time.
func (s *scene) firstProxy() *harness.Proxy { return s.proxies.All()[0] }

// eagerFlag returns the value of --eager with all changing kinds.
func eagerFlag() string {
	var names []string
	for _, k := range changing {
		names = append(names, k.Eager())
	}
	return strings.Join(names, ",")
}

// removeProxy removes a replica from the balancer, and from those that the end of the case stops.
func (s *scene) removeProxy(p *harness.Proxy) {
	s.proxies.Balancer.Remove(p.Address())
	s.proxies.Remove(p)
}

// isFeedRequest reports whether listproxy sent a request to keep a collection of a changing kind up to date: a list, a watch,
// or a revision probe (a list of a name that cannot exist, which tells the newest revision).
func isFeedRequest(r *http.Request) bool {
	return hop.Own(r) && slices.ContainsFunc(changing, func(k kind) bool {
		return strings.HasPrefix(r.URL.Path, strings.TrimSuffix(k.Path(""), k.Plural)) && strings.HasSuffix(r.URL.Path, "/"+k.Plural)
	})
}

// populate creates the definition, the namespaces and the first objects, unless they exist.
func (s *scene) populate(ctx context.Context) error {
	if err := s.ensure(ctx, kinds.Definitions, widgets.Definition()); err != nil {
		return err
	}
	for _, ns := range s.namespaces {
		if err := s.ensure(ctx, "/api/v1/namespaces", kinds.Namespace(ns)); err != nil {
			return err
		}
		if err := s.ensure(ctx, fleeting.Path(ns), fleeting.Object(marker)); err != nil {
			return err
		}
		for _, k := range changing {
			if err := s.ensure(ctx, k.Path(ns), k.Object(marker)); err != nil {
				return err
			}
			for i := range namesPerNamespace / 2 {
				if err := s.ensure(ctx, k.Path(ns), k.Object(load.ObjectName(i))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// ensure creates an object unless it exists.
func (s *scene) ensure(ctx context.Context, path string, object any) error {
	return poll.Retry(ctx, "creating what the case needs", func() error { return s.direct.Ensure(ctx, path, object) })
}

// deleteAll deletes what the case has written, so that the next cases list less.
func (s *scene) deleteAll() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, k := range append([]kind{revisionKind, fleeting}, changing...) {
		for _, ns := range s.namespaces {
			if _, err := s.direct.Do(ctx, http.MethodDelete, k.Path(ns)+"?gracePeriodSeconds=0", nil); err != nil {
				s.Log(err)
			}
		}
	}
}

// recordBeforeCompaction is called just before etcd is compacted. It pauses writes, waits until all answers so far are
// verified, and records the states at the revisions that askers may still ask for. resume ends the pause. It must be called,
// and may be called twice.
func (s *scene) recordBeforeCompaction() (resume func()) {
	s.Helper()
	return s.pauseAndRecord(func() error {
		const etcdReplaced = false
		return s.recordHistory(max(s.Ledger.OldestRecent(), s.compactedRevision), etcdReplaced)
	})
}

// recordBeforeReplacement is called just before etcd is replaced. It is like recordBeforeCompaction, with two differences:
//
//   - It records the states at all revisions that listproxy may have in memory, since the new etcd may give these revisions to
//     other states.
//   - It makes the ledger forget all writes. The new etcd does not have them, and an answer without them must not be called
//     too old. Such an answer may come before this test sees the API server again, so the ledger forgets them beforehand.
func (s *scene) recordBeforeReplacement() (resume func()) {
	s.Helper()
	s.stopFollowers() // they would go on watching from revisions of the old etcd
	return s.pauseAndRecord(func() error {
		const etcdReplaced = true
		err := s.recordHistory(max(s.firstRevision, s.compactedRevision), etcdReplaced)
		if err == nil {
			s.Ledger.Forget()
		}
		return err
	})
}

// pauseAndRecord pauses writes, waits until all answers so far are verified, and calls record. resume ends the pause.
func (s *scene) pauseAndRecord(record func() error) (resume func()) {
	s.Helper()
	s.pauseWrites.Lock()
	s.awaitAskers()
	err := s.Verifier.Drain(s.Context(), patience)
	if err == nil {
		err = record()
	}
	if err != nil {
		s.pauseWrites.Unlock()
		s.Fatal(err)
	}
	return sync.OnceFunc(s.pauseWrites.Unlock)
}

// awaitAskers waits for the answers to the questions that are under way. Questions that begin later choose one of the last
// revisions.
func (s *scene) awaitAskers() {
	s.pauseAsks.Lock()
	s.pauseAsks.Unlock() //nolint:staticcheck // nothing to do between the two
}

// recordHistory records the states from a revision on, which kube-apiserver is about to lose.
func (s *scene) recordHistory(from uint64, etcdReplaced bool) error {
	history, err := load.RecordHistory(s.Context(), s.direct, changing, from, etcdReplaced, s.plane.EtcdRevision)
	if err == nil {
		s.Verifier.RecordLoss(history)
	}
	return err
}
