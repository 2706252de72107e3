package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/snapshot/clock"
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
	*load.Load
	plane   *controlplane.ControlPlane
	servers []*controlplane.APIServer // further ones
	direct  *ask.Client

	hop       *hop.Hop
	own       *rest.Config  // listproxy's, which leads to the hop, or to the door
	door      *hop.Balancer // before API servers, where a case has one
	binary    string        // of listproxy; "": the usual one
	args      []string
	proxies   *harness.Replicas
	via       *ask.Client
	viaConfig *rest.Config

	namespaces []string
	// since is etcd's revision before the first listproxy started: none knows anything older.
	since uint64
	// compacted is the revision at which etcd was last compacted: what was before is recorded.
	compacted      uint64
	broken         load.Window  // when the last fault lasted
	writing        sync.RWMutex // held by whoever wants nobody to write
	writesFleeting atomic.Bool  // fleeting objects are written
	asking         sync.RWMutex // held for reading from the choice of a revision to the last answer
	resting        sync.RWMutex // held by a soak that rests, so that nobody asks for the newest state

	followers []follower
	stop      context.CancelFunc // ends the followers
	watchHits atomic.Int64       // how many of their watches came from memory
	// fleetingHits is how many of those were of fleeting objects, also of followers before.
	fleetingHits atomic.Int64
}

// newScene prepares a case, once there is a place on the stage. Nothing asks yet.
func newScene(t *testing.T, on *stage, name, binary string) *scene {
	leave, err := on.enter(context.WithoutCancel(t.Context()))
	t.Cleanup(leave)
	expect.NoError(t, err)
	plane := on.plane
	s := &scene{T: t, plane: plane, servers: on.servers, binary: binary}
	name = strings.ReplaceAll(name, "_", "-")
	s.namespaces = []string{name, name + "-b"}
	s.direct = ask.MustNew(t, plane.RESTConfig(controlplane.Admin), requestTimeout)
	s.Load = load.New(s.direct)
	s.must(s.populate(t.Context()))
	t.Cleanup(s.clear)

	s.hop = hop.Run(t, plane.URL(), plane.CA(), hop.Odd{})
	s.own = s.hop.RESTConfig(plane.RESTConfig(controlplane.Feed))
	if on == broken {
		t.Cleanup(s.mend)
	}
	s.proxies = harness.NewReplicas(t)
	t.Cleanup(func() { s.proxies.Stop(t) })
	s.viaConfig = s.proxies.Through(plane.RESTConfig(controlplane.Admin))
	s.via = ask.MustNew(t, s.viaConfig, requestTimeout)
	return s
}

// faultBegins notes that the fault begins now. What a case does before that only prepares it.
func (s *scene) faultBegins() {
	s.broken = load.Window{From: time.Now()}
	s.writesFleeting.Store(true)
}

// faultEnds notes that the fault ends now. What a case does after that only completes it.
func (s *scene) faultEnds() { s.broken.To = time.Now() }

func (s *scene) must(err error) {
	s.Helper()
	expect.NoError(s, err)
}

// start runs one more listproxy, waits until it is ready, and lets clients come to it.
func (s *scene) start() {
	s.Helper()
	if s.since == 0 {
		now, err := s.plane.EtcdRevision(s.Context())
		s.must(err)
		s.since = uint64(now) // #nosec G115 -- a revision
	}
	_, err := s.proxies.Start(s.Context(), harness.ProxyOptions{Upstream: s.own, Binary: s.binary, Args: append([]string{
		"--staleness-bound", s.Bound.String(), "--consistent-lists=always", "--watches",
	}, s.args...)}, s.viaConfig)
	s.must(err)
}

// eager is the --eager for all that changes.
func eager() string {
	var names []string
	for _, k := range changing {
		names = append(names, k.Eager())
	}
	return strings.Join(names, ",")
}

// forget takes a listproxy out of those that the end of the case stops.
func (s *scene) forget(p *harness.Proxy) {
	s.proxies.Balancer.Remove(p.Address())
	s.proxies.Remove(p)
}

// ofFeed reports whether a request is one of listproxy's own about what changes: a list, a watch,
// or the question how far the API server is. Discovery, reviews and what else it watches are
// others.
func ofFeed(r *http.Request) bool {
	return hop.Own(r) && slices.ContainsFunc(changing, func(k kind) bool {
		return strings.HasPrefix(r.URL.Path, strings.TrimSuffix(k.Path(""), k.Plural)) && strings.HasSuffix(r.URL.Path, "/"+k.Plural)
	})
}

// populate creates what a case needs, where it does not exist.
func (s *scene) populate(ctx context.Context) error {
	if err := s.create(ctx, kinds.Definitions, widgets.Definition()); err != nil {
		return err
	}
	for _, ns := range s.namespaces {
		if err := s.create(ctx, "/api/v1/namespaces", kinds.Namespace(ns)); err != nil {
			return err
		}
		if err := s.create(ctx, fleeting.Path(ns), fleeting.Object(marker)); err != nil {
			return err
		}
		for _, k := range changing {
			if err := s.create(ctx, k.Path(ns), k.Object(marker)); err != nil {
				return err
			}
			for i := range names / 2 {
				if err := s.create(ctx, k.Path(ns), k.Object(load.NameOf(i))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// create creates an object that need not be new.
func (s *scene) create(ctx context.Context, path string, object any) error {
	return poll.Retry(ctx, "creating what the case needs", func() error { return s.direct.Ensure(ctx, path, object) })
}

// clear removes what the case has written, so that others have less to list.
func (s *scene) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, k := range append([]kind{revisions, fleeting}, changing...) {
		for _, ns := range s.namespaces {
			if _, err := s.direct.Do(ctx, http.MethodDelete, k.Path(ns)+"?gracePeriodSeconds=0", nil); err != nil {
				s.Log(err)
			}
		}
	}
}

// hold lets time pass while a fault lasts: on a slow machine more, until there are some answers, of
// which one that must come from memory has to be there in the end. It does not wait longer than old
// states are given.
func (s *scene) hold() {
	if !clock.Sleep(s.Context(), *duration) {
		return
	}
	for most := time.Now().Add(load.Bound); time.Now().Before(most); {
		given := s.Tally.Counts(load.Window{From: s.broken.From, To: time.Now()})
		if given.During >= calmDuring && given.DuringHits > 0 || !clock.Sleep(s.Context(), pollEvery) {
			return
		}
	}
}

// calm waits until calmAround more answers from memory have been compared.
func (s *scene) calm(when string) {
	s.Helper()
	before := s.Tally.Counts(load.Window{}).Compared
	s.must(poll.Retry(s.Context(), "enough answers from memory "+when, func() error {
		if n := s.Tally.Counts(load.Window{}).Compared - before; n < calmAround {
			return fmt.Errorf("%d have been compared", n)
		}
		return nil
	}))
}

// still stops the writers until the function that it returns is called, which may be called again
// and must be whatever happens, or they never end. It waits until all that was asked for before is
// verified. Then it records the past, which is about to be taken away. If it is to be replaced the
// ledger forgets it now, while nobody writes: the first answer of the next past may come from
// memory before the API server's return is known here, and must not be held against revisions of
// this one.
func (s *scene) still(replaced bool) (resume func()) {
	s.Helper()
	if replaced {
		s.stop() // these would watch a past
	}
	s.writing.Lock()
	s.asking.Lock()   // who asks now chose a revision a while ago, who asks from now on chooses one of the last
	s.asking.Unlock() //nolint:staticcheck // it is there to wait for askers
	err := s.Oracle.Drain(s.Context(), patience)
	if err == nil {
		var p *load.Past
		from := max(s.Ledger.OldestRecent(), s.compacted)
		if replaced {
			// Revisions are given a second time, and then asked for: all that is in memory.
			from = max(s.since, s.compacted)
		}
		if p, err = load.Record(s.Context(), s.direct, changing, from, replaced, s.plane.EtcdRevision); err == nil {
			s.Oracle.Lose(p)
		}
	}
	if err == nil && replaced {
		s.Ledger.Forget()
	}
	if err != nil {
		s.writing.Unlock()
		s.Fatal(err)
	}
	return sync.OnceFunc(s.writing.Unlock)
}

// recover waits until every collection answers from memory with what is written now.
func (s *scene) recover() {
	s.Helper()
	for _, c := range collections() {
		var revision uint64
		s.must(poll.Retry(s.Context(), "a write", func() (err error) {
			revision, err = s.touch(s.Context(), c.Kind, s.namespaces[0])
			return err
		}))
		s.must(poll.Retry(s.Context(), "an answer from memory with what was written after the fault", func() error {
			return s.fromMemory(s.Context(), question{Collection: c, Query: ask.NotOlderThan(revision)})
		}))
	}
}

// fromMemory puts a question whose answer must be a list from memory.
func (s *scene) fromMemory(ctx context.Context, q question) error {
	a, err := s.via.GetAs(ctx, q.Form.Accept, q.Target())
	if err == nil && (a.Code != http.StatusOK || !a.FromMemory()) {
		err = errors.New(a.String())
	}
	return err
}

// settled demands that all followers come to the true state.
func (s *scene) settled() {
	s.Helper()
	for _, f := range s.followers {
		err := poll.Retry(s.Context(), f.name, func() error {
			truth, err := load.Read(s.Context(), s.direct, f.follows)
			if err != nil {
				return err
			}
			if revision := f.lacks(); revision > 0 {
				return fmt.Errorf("it was not told of the write at revision %d", revision)
			}
			if got, want := f.state(), ask.Versions(truth.Objects); !maps.Equal(got, want) {
				return fmt.Errorf("it knows %d objects, there are %d (-want +got): %.2000s", len(got), len(want), cmp.Diff(want, got))
			}
			return nil
		})
		if err != nil {
			s.Tally.Wrong("a follower does not come to the true state: %v", err)
			continue
		}
		s.Tally.Came()
	}
}

// selfChecked waits until what is kept was compared by listproxy itself, which must have found
// nothing wrong, whatever has changed meanwhile.
func (s *scene) selfChecked() {
	s.Helper()
	s.must(poll.Retry(s.Context(), "a self-check that agrees", func() error {
		if n := s.selfChecks("mismatch"); n > 0 {
			return poll.Wrong(fmt.Sprintf("%.0f self-checks found something wrong", n))
		}
		if s.selfChecks("agrees") == 0 {
			return errors.New("there was none")
		}
		return nil
	}))
}

// selfChecks is how many self-checks came to a result, or to any if it is "".
func (s *scene) selfChecks(result string) float64 {
	s.Helper()
	labels := map[string]string{}
	if result != "" {
		labels["result"] = result
	}
	n, _, err := s.proxies.All()[0].Metric(s.Context(), "listproxy_selfchecks_total", labels)
	s.must(err)
	return n
}
