package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestPagesOfSeveral: the pages of one walk come from one replica, from the other, and from
// kube-apiserver itself, in turn. Together they are the list.
func TestPagesOfSeveral(t *testing.T) {
	harness.Long(t)
	r := takeRig(t)
	sides := []*ask.Client{r.writer}
	for range 2 {
		sides = append(sides, r.startAlone(plane.URL()))
	}
	quiet := r.load() // what is read changes meanwhile
	defer quiet()
	r.part("nothing", noticedAtOnce, func() {})

	hits := map[*ask.Client]int{}
	for turn := range 30 {
		for _, k := range changing() {
			q := question{Collection: collection{Kind: k, Form: load.AsJSON}, Query: ask.FirstPage(pageSize, ask.Exactly(r.Ledger.NewestOfAll()))}
			var items []string
			var revision uint64
			for page := 0; ; page++ {
				side := sides[(turn+page)%len(sides)]
				var l ask.List
				r.must(poll.Retry(t.Context(), "a page", func() error {
					a, err := side.Get(t.Context(), q.Target())
					if err != nil {
						return err
					}
					if a.NotThereYet() {
						return errors.New(a.String())
					}
					if a.Code != http.StatusOK {
						return poll.Wrong(a.String())
					}
					if a.FromMemory() {
						hits[side]++
					}
					l, err = ask.ReadList(ask.JSON, a.Body)
					return err
				}))
				for _, item := range l.Items {
					items = append(items, string(item))
				}
				if revision != 0 && l.Revision != revision {
					t.Fatalf("%s: a page of revision %d after one of %d", q, l.Revision, revision)
				}
				revision = l.Revision
				if l.Next == "" {
					break
				}
				q.Query = ask.NextPage(pageSize, l.Next)
			}
			var want ask.List
			r.must(poll.Retry(t.Context(), "the whole list", func() error {
				a, err := r.writer.Do(t.Context(), http.MethodGet, k.Path("")+"?"+ask.Exactly(revision), nil)
				if err == nil {
					want, err = ask.ReadList(ask.JSON, a.Body)
				}
				return err
			}))
			if !slices.EqualFunc(items, want.Items, func(s string, raw json.RawMessage) bool { return s == string(raw) }) {
				t.Errorf("%s at %d: the pages hold %d objects, the whole list %d, or others", k.Plural, revision, len(items), len(want.Items))
			}
		}
	}
	for i, side := range sides[1:] {
		t.Logf("replica %d answered %d pages from memory", i+1, hits[side])
		if hits[side] == 0 {
			t.Errorf("replica %d answered nothing from memory", i+1)
		}
	}
}

// TestNeverBackInTime: a client who demands NotOlderThan of what it saw, of one replica and of the
// other, gets that; also of what has only just been written. So do those whose requests a balancer
// spreads.
func TestNeverBackInTime(t *testing.T) {
	harness.Long(t)
	r := takeRig(t)
	replicas := []*ask.Client{r.startAlone(plane.URL()), r.startAlone(plane.URL())}
	each := r.separate() // askers, too: a connection for each request
	r.clients = []*ask.Client{each}
	quiet := r.load()
	defer quiet()
	r.part("nothing", noticedAtOnce, func() {})

	hits := make([]int, len(replicas))
	r.part("read after each write", noticedAtOnce, func() {
		seen := uint64(0)
		for turn := range 40 {
			if a, err := r.Touch(t.Context(), each, load.ConfigMaps, r.ns, load.NameOf(0)); err != nil && a.Code != http.StatusNotFound { // it may be deleted just now
				t.Fatal(err)
			}
			atLeast := max(seen, r.Ledger.NewestOfAll())
			for i := range replicas {
				which := (turn + i) % len(replicas)
				for _, form := range []load.Form{load.AsJSON, load.AsMetadata} {
					q := question{Collection: collection{Kind: load.ConfigMaps, Form: form}, Query: ask.NotOlderThan(atLeast)}
					r.must(poll.Retry(t.Context(), q.String(), func() error {
						l, memory, err := r.put(t.Context(), replicas[which], q, atLeast)
						if memory {
							hits[which]++
						}
						seen = max(seen, l.Revision)
						return err
					}))
					atLeast = max(seen, atLeast)
				}
			}
		}
	})
	for i, n := range hits {
		t.Logf("replica %d answered %d reads from memory", i+1, n)
		if n == 0 {
			t.Errorf("replica %d answered no read after a write from memory", i+1)
		}
	}
}

// startAlone is start, and returns a client of that listproxy only.
func (r *rig) startAlone(upstream string) *ask.Client {
	r.Helper()
	p := r.start(upstream)
	cfg := r.through()
	cfg.Host = p.URL()
	return ask.MustNew(r, cfg, requestTimeout)
}

// separate returns a client that makes a connection for each request.
func (r *rig) separate() *ask.Client {
	cfg := r.through()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return closing{next} })
	cfg.NextProtos = []string{"http/1.1"}
	return ask.MustNew(r, cfg, requestTimeout)
}

type closing struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (c closing) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.Close = true
	return c.next.RoundTrip(q)
}

const (
	// noticed is how late a balancer hears that a replica is not ready any more.
	noticed = 1500 * time.Millisecond
	// delay is for how long replicas go on after SIGTERM: longer than that.
	delay = 15 * time.Second
)

// TestRolled: all replicas are replaced under load, one by one. SIGTERM comes first, and the
// balancer, which looks at /readyz, hears of it late. No request is lost: of clients that keep
// their connections, with HTTP/2 and HTTP/1.1, and of one that makes one for each request; reads
// and writes.
func TestRolled(t *testing.T) {
	harness.Long(t)
	r := takeRig(t)
	start := func() *harness.Proxy {
		return r.start(plane.URL(), "--shutdown-delay-duration", delay.String(), "--shutdown-timeout", "1m")
	}
	var old []*harness.Proxy
	for range 2 {
		old = append(old, start())
	}
	old1 := r.through()
	old1.NextProtos = []string{"http/1.1"}
	kept := ask.MustNew(r, old1, requestTimeout)
	r.clients = append(r.clients, kept, r.separate())
	quiet := r.load()
	defer quiet()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	r.gaps.expect("writes")
	for _, c := range r.clients {
		writing.Go(func() {
			for poll.Pause(ctx, 2*askEvery) {
				asked := time.Now()
				a, err := r.Touch(ctx, c, load.ConfigMaps, r.ns, load.NameOf(1))
				if ctx.Err() == nil && a.Code != http.StatusNotFound { // it may be deleted just now
					r.heard("writes", asked, a, err)
				}
			}
		})
	}
	r.part("nothing", noticedAtOnce, func() {})
	lost := r.part("rolled", noticedAtOnce, func() {
		for _, p := range old {
			start()
			ended := make(chan error, 1)
			go func() { ended <- r.retire(p) }()
			r.must(poll.Retry(ctx, "the balancer to hear of it", func() error {
				if ready, said := p.Ready(ctx); ready {
					return errStillReady(said)
				}
				return nil
			}))
			poll.Pause(ctx, noticed)
			r.proxies.Balancer.Remove(p.Address())
			r.must(<-ended)
		}
	}).lost
	if lost != 0 {
		t.Errorf("%d requests were lost", lost)
	}
	cancel()
	writing.Wait()
}

type errStillReady string

func (e errStillReady) Error() string { return "still ready: " + strings.TrimSpace(string(e)) }

// retire stops a replica, which the end of the test need not do then.
func (r *rig) retire(p *harness.Proxy) error {
	r.proxies.Remove(p)
	return p.Stop()
}
