package feed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// Rule 6: a quiet resource learns how far the upstream is when somebody asks for more than its
// feed has heard of: by one probe at a time, however many ask, and never by a limit=1 list.
func TestProbe(t *testing.T) {
	t.Parallel()
	k := priorityClasses
	r := newRig(t, shared, rigOptions{})
	r.unhurried(t, k, r.namespace(t, "busy"), func(r *rig, ns string) error {
		var probes watched
		r.create(t, k, "", "quiet-beside-"+ns)
		r.await(hitAny, k.Path(""), anyVersion())
		r.onFault(func(_ http.ResponseWriter, req *http.Request) bool {
			if of(req, k) && isProbe(req.URL.Query()) {
				probes.hold(req.Context())
			}
			return false
		})
		stop := r.busy(t, configMaps, ns)
		defer stop()

		// Bookmarks come at any time. None passes before all have asked.
		var telling hop.Gate
		defer telling.Open()
		r.changeLines(func(req *http.Request, line []byte) ([]byte, error) {
			if !of(req, k) {
				return line, nil
			}
			return line, telling.Pass(req.Context())
		})
		eightTimes := func(do func() error) {
			var askers sync.WaitGroup
			for range 8 {
				askers.Go(func() {
					if err := do(); err != nil {
						t.Error(err)
					}
				})
			}
			askers.Wait()
		}

		firstPages := func(q url.Values) bool { return q.Has("limit") }
		before := r.count(k, firstPages)
		for i := range 5 {
			telling.Shut()
			revision := r.create(t, configMaps, ns, fmt.Sprintf("other-%d", i))
			var others atomic.Int32
			eightTimes(func() error {
				return poll.Retry(t.Context(), "an answer", func() error {
					a, err := r.try(k.Path(""), notOlderThan(revision))
					if err == nil && a.Source() != fwdNotProven {
						others.Add(1)
					}
					return err
				})
			})
			telling.Open()
			if n := others.Load(); n != 0 {
				return fmt.Errorf("%d of 8 lists were not forwarded as ahead of the feed", n)
			}
			eightTimes(func() error { return r.reaches(t.Context(), k, revision) })
			if _, err := r.comes(hitNotOlderThan, k.Path(""), notOlderThan(revision)); err != nil {
				return err
			}
		}
		if n := probes.atOnce(); n != 1 {
			t.Errorf("%d probes at the same time, not one", n)
		}
		if n := r.count(k, firstPages); n != before {
			return fmt.Errorf("%d lists with a limit after the load", n-before)
		}
		return r.loaded(k, 1)
	})
}

// reaches asks until a revision is reached, or there is a wrong answer.
func (r *rig) reaches(ctx context.Context, k kind, revision string) error {
	return poll.Retry(ctx, "revision "+revision, func() error {
		a, err := r.try(k.Path(""), notOlderThan(revision))
		if err == nil && a.Source() != hitNotOlderThan {
			err = fmt.Errorf("revision %s came from %q", revision, a.Source())
		}
		return err
	})
}

// busy writes all the time, until stop is called.
func (r *rig) busy(t *testing.T, k kind, namespace string) (stop func()) {
	t.Helper()
	r.create(t, k, namespace, "busy")
	ctx, cancel := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_, err := r.direct.Do(ctx, http.MethodPatch, k.Path(namespace)+"/busy",
				kinds.Touch(fmt.Sprint(i)))
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
			poll.Pause(ctx, pollEvery)
		}
	})
	return func() {
		cancel()
		writer.Wait()
	}
}

// watched counts what is under way at the same time. What is held takes long enough for another
// to be seen; what the feed has given up does not count.
type watched struct {
	mu   sync.Mutex
	now  []context.Context
	most int
}

func (w *watched) hold(ctx context.Context) {
	w.mu.Lock()
	w.now = append(w.now, ctx)
	w.mu.Unlock()
	poll.Pause(ctx, 10*pollEvery)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = slices.DeleteFunc(w.now, func(other context.Context) bool { return other.Err() != nil })
	w.most = max(w.most, len(w.now))
	w.now = slices.DeleteFunc(w.now, func(other context.Context) bool { return other == ctx })
}

// atOnce is how many there were at the same time, at most.
func (w *watched) atOnce() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

// Rule 6: nobody asks for more, and nothing happens to a resource: its feed finds out by itself
// that it is still true, within the bound, however many writes there are elsewhere.
func TestHeartbeat(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for name, busy := range map[string]bool{"writes now and then": false, "writes all the time": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := csiDrivers
			if busy {
				k = limitRanges
			}
			r := newRig(t, shared, rigOptions{bound: shortestBound})
			ns := r.namespace(t, "heartbeat-"+k.Plural)
			// Other tests make limit ranges, too: the first one ever is not to come later. And
			// without any object the feed could not resume a watch that a busy machine has broken.
			r.create(t, k, ns, "first")
			if busy {
				defer r.busy(t, configMaps, ns)()
			}
			r.await(hitAny, k.Path(""), anyVersion())
			// A feed asks the same when it learns by what its objects can be selected.
			probes := r.count(k, isProbe)
			begun, live := time.Now(), newPulse(shortestBound)
			r.until("three times the bound", func() error {
				if err := r.feel(live, k); err != nil {
					return err
				}
				if time.Since(begun) < 3*shortestBound+slack {
					return fmt.Errorf("only %v have passed", time.Since(begun))
				}
				return nil
			})
			if r.count(k, isProbe)-probes < 2 {
				t.Error("the feed did not probe: this test has shown nothing")
			}
		})
	}
}

// pulse is whether a collection lives: whether its newest state is given.
type pulse struct {
	bound  time.Duration // --staleness-bound
	last   time.Time     // when it was known to live
	missed int           // how often it was not given since
}

func newPulse(bound time.Duration) *pulse { return &pulse{bound: bound, last: time.Now()} }

// feel asks for the newest state. Now and then it may be forwarded, where the machine is busy
// elsewhere and a heartbeat late. It is wrong if that goes on for longer than the bound, whenever
// one looks.
func (r *rig) feel(p *pulse, k kind) error {
	const looks = 5
	asked := time.Now()
	a, err := r.try(k.Path(""), anyVersion())
	switch {
	case err != nil:
		return err
	case a.Source() == hitAny:
		p.last, p.missed = time.Now(), 0
		return nil
	}
	p.missed++
	if silent := asked.Sub(p.last); silent > p.bound && p.missed >= looks {
		return poll.Wrong(fmt.Sprintf("for %v the collection has not been live: %s", silent, a.Source()))
	}
	return nil
}

// The page after a newest one, which only the API server can give, is asked for at a revision that
// the feed of a quiet resource has not heard of. It finds out as soon as the first page has passed.
func TestNewestPagesAnnounceTheNext(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, shared, rigOptions{bound: 10 * time.Minute})
	ns := r.namespace(t, "next-page")
	k := storageClasses
	for i := range 3 {
		r.create(t, k, "", fmt.Sprintf("object-%d", i))
	}
	r.await(hitAny, k.Path(""), anyVersion())
	// The feed may hear of a revision by itself, just now; not each time.
	var first ask.Answer
	r.until("the feed to ask", func() error {
		r.create(t, configMaps, ns, fmt.Sprintf("elsewhere-%d", time.Now().UnixNano()))
		probes, watches := r.count(k, isProbe), r.count(k, anyWatch)
		var err error
		if first, err = r.admin.Get(t.Context(), k.Path("")+"?limit=1"); err != nil {
			return err
		}
		if first.Source() != "listproxy; fwd=bypass; detail=most-recent" {
			return poll.Wrong("the first page: " + first.String())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*slack)
		defer cancel()
		return poll.Retry(ctx, "a question or a watch", func() error {
			if r.count(k, isProbe) == probes || r.count(k, anyWatch) == watches {
				return errors.New("it has not")
			}
			return nil
		})
	})
	r.await(hitContinue, k.Path(""), query("limit=1", "continue="+first.Meta().Continue))
}

// demandPause is the least time between two probes because somebody waits (package snapshot).
const demandPause = 500 * time.Millisecond

// TestNewestPagesThatFit: a newest list with a limit that all objects fit in has no next page, and
// on a quiet resource it makes the feed ask nothing.
func TestNewestPagesThatFit(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, shared, rigOptions{bound: 10 * time.Minute})
	ns := r.namespace(t, "pages-that-fit")
	k := networkPolicies
	for i := range 3 {
		r.create(t, k, ns, fmt.Sprintf("object-%d", i))
	}
	r.await(hitAny, k.Path(ns), anyVersion())
	newest := func(limit int) ask.Answer {
		t.Helper()
		r.create(t, configMaps, ns, fmt.Sprintf("elsewhere-%d", time.Now().UnixNano()))
		a, err := r.admin.Get(t.Context(), k.Path(ns)+"?"+query(fmt.Sprintf("limit=%d", limit)).Encode())
		if err != nil || a.Source() != "listproxy; fwd=bypass; detail=most-recent" {
			t.Fatalf("a newest page: %s, %v", a, err)
		}
		return a
	}
	questions := func() int { return r.count(k, isProbe) + r.count(k, anyWatch) }
	before := questions()
	// Who waits may make a feed ask once in each demandPause, so that lists in fewer of them would
	// show nothing.
	const pauses = 10
	for begun, lists := time.Now(), 0; lists < 2*pauses || time.Since(begun) < pauses*demandPause; lists++ {
		if !poll.Pause(t.Context(), pollEvery) {
			t.Fatal(t.Context().Err())
		}
		if a := newest(500); a.Meta().Continue != "" {
			t.Fatalf("it does not fit: %s", a)
		}
	}
	if a := newest(1); a.Meta().Continue == "" { // what it asks comes after what those before it asked
		t.Fatalf("it fits: %s", a)
	}
	r.until("a question", func() error {
		if questions() == before {
			return errors.New("none")
		}
		return nil
	})
	// One page has a next one: a probe and a watch. A heartbeat may have come as well.
	if got := questions() - before; got > 4 {
		t.Errorf("%d questions of the feed for lists that fit", got)
	}
}

// uncachedFor is for how long requests are counted: shorter than the first pause between two tries.
const uncachedFor = 40 * time.Second

// Rule 10: where kube-apiserver has no watch cache for a resource, short watches end without a
// bookmark. After a few of these lists of the newest state are forwarded at once, and nothing is
// asked in vain.
func TestWithoutWatchCache(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, ownCluster(t, "--watch-cache-sizes=configmaps#0"), rigOptions{args: []string{"--consistent-lists=always", "--watches"}})
	ns := r.namespace(t, "uncached")
	r.create(t, configMaps, ns, "one")
	r.create(t, endpoints, ns, "elsewhere")
	r.await(hitAny, configMaps.Path(ns), anyVersion())
	streaming := configMaps.Path(ns) + "?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	asks := func() (took time.Duration, err error) {
		begun := time.Now()
		a, err := r.try(configMaps.Path(ns), query())
		took = time.Since(begun)
		if err == nil && a.Source() != fwdNotProven {
			err = fmt.Errorf("it came from %q", a.Source())
		}
		return took, err
	}
	begun := time.Now()
	r.until("the status page to say that nothing is proven", func() error {
		r.touch(t, endpoints, ns, "elsewhere", fmt.Sprint(time.Now().UnixNano()))
		if _, err := asks(); err != nil {
			return err
		}
		status, err := r.proxy.Status(t.Context())
		if err == nil && !slices.ContainsFunc(status.Collections, func(c admin.Collection) bool {
			return c.Resource == configMaps.Plural && c.State == "not-proven"
		}) {
			err = fmt.Errorf("it says %+v", status.Collections)
		}
		return err
	})
	t.Logf("the status page says so after %v", time.Since(begun).Round(time.Second))
	probes, watches := r.count(configMaps, isProbe), r.count(configMaps, short)
	slowest, lists := time.Duration(0), 0
	for begun := time.Now(); time.Since(begun) < uncachedFor; lists++ {
		r.touch(t, endpoints, ns, "elsewhere", fmt.Sprint(time.Now().UnixNano()))
		took, err := asks()
		if err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, took)
		asked := time.Now()
		resp, err := r.admin.Open(t.Context(), http.MethodGet, streaming, nil)
		if err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(asked))
		if source := resp.Header.Get("Cache-Status"); source != fwdNotProven {
			t.Errorf("a streaming list came from %q", source)
		}
		_ = resp.Body.Close()
		if !poll.Pause(t.Context(), time.Second) {
			return
		}
	}
	probes, watches = r.count(configMaps, isProbe)-probes, r.count(configMaps, short)-watches
	t.Logf("%d lists and as many streaming lists in %v: the slowest began after %v; %d questions and %d short watches of the feed",
		lists, uncachedFor, slowest.Round(time.Millisecond), probes, watches)
	if probes > 0 || watches > 0 {
		t.Error("the feed asks in vain")
	}
}
