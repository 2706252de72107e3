package upstreams

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

type (
	kind       = kinds.Kind
	collection = load.Collection
	question   = load.Question
)

func changing() []kind { return []kind{load.ConfigMaps, load.Pods} }

func collections() []collection { return load.Collections(changing()...) }

const (
	askEvery    = 20 * time.Millisecond
	newestEvery = 50 * time.Millisecond
	writeEvery  = 60 * time.Millisecond
	names       = 12 // of objects
	pageSize    = 5
	// calm is how many answers are compared in each part of a test, at least.
	calm = 60
	// unanswered is how long a request waits for its answer before the next is sent beside it.
	unanswered = 2 * time.Second

	// patience ends a wait for what must come; nothing passes because of it.
	patience = 3 * time.Minute
	// requestTimeout is longer than any failure here should take to be noticed.
	requestTimeout = time.Minute
	pollEvery      = 20 * time.Millisecond

	// The sorts of requests whose gaps are measured.
	sortList    = "lists"
	sortNewest  = "lists of any state"
	sortForward = "forwards"
	sortDirect  = "questions to an undisturbed API server"

	// For how long there may be no answer at all, of either sort. What is measured is far below:
	// these find an outage, also on a slow machine.
	noticedAtOnce = 15 * time.Second // where a connection breaks
	noticedLate   = 30 * time.Second // where nothing is heard any more
)

// rig is listproxies behind a balancer, and clients that ask them.
type rig struct {
	*testing.T
	*load.Load
	plane   *controlplane.ControlPlane
	writer  *ask.Client   // of an undisturbed API server
	direct  []*ask.Client // to that one, and of the others
	clients []*ask.Client // with one token and with the other
	callers []*rest.Config
	gaps    *gaps
	ns      string
	// grouped: pods have a field that only newer API servers know.
	grouped bool

	// cas are those of hops before API servers.
	cas []byte

	// starting is how many API servers are being started: they refuse everybody until they have
	// read their roles.
	starting atomic.Int32

	proxies *harness.Replicas
}

// turn is that of the test which breaks API servers. Another waits for it.
var turn sync.Mutex

// takeTurn lets a test run beside those with a control plane of their own, and not beside those that
// break the same API servers.
func takeTurn(t *testing.T) {
	t.Helper()
	t.Parallel()
	turn.Lock()
	t.Cleanup(turn.Unlock)
}

// takeRig makes a rig on the control plane of all tests, when it is this test's turn.
func takeRig(t *testing.T) *rig {
	t.Helper()
	takeTurn(t)
	return newRig(t, plane, plane.RESTConfig(controlplane.Admin))
}

// newRig makes everything but listproxies, and stops those when the test ends. Answers are compared
// with those of the API server direct, to which all is written, and where there are more of them may
// be what those say.
func newRig(t *testing.T, plane *controlplane.ControlPlane, direct ...*rest.Config) *rig {
	t.Helper()
	r := &rig{
		T: t, grouped: len(direct) > 1, plane: plane, ns: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")),
		gaps: newGaps(), proxies: harness.NewReplicas(t),
	}
	for _, cfg := range direct {
		c := ask.MustNew(r, cfg, requestTimeout)
		r.direct = append(r.direct, c)
	}
	r.writer, r.Load = r.direct[0], load.New(r.direct...)

	account, err := plane.CreateServiceAccountToken(t.Context(), controlplane.TeamA, "lister")
	r.must(err)
	r.must(plane.GrantAll(t.Context(), controlplane.Grant{To: []string{controlplane.TeamA + "/lister"}, Role: "cluster-admin"}))
	for _, token := range []string{plane.Token(controlplane.Admin), account} {
		cfg := r.through()
		cfg.BearerToken = token
		c := ask.MustNew(r, cfg, requestTimeout)
		r.callers = append(r.callers, cfg)
		r.clients = append(r.clients, c)
	}
	r.populate()
	t.Cleanup(func() {
		for _, k := range changing() {
			_, _ = r.writer.Send(context.Background(), http.MethodDelete, k.Path(r.ns)+"?gracePeriodSeconds=0", nil)
		}
	})
	t.Cleanup(func() { r.proxies.Stop(t) })
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	expect.NoError(r, err)
}

// through returns the configuration of a client that goes through the balancer to listproxy.
func (r *rig) through() *rest.Config {
	return r.proxies.Through(r.plane.RESTConfig(controlplane.Admin))
}

// start runs one more listproxy, waits until it is ready, and lets clients come to it.
func (r *rig) start(upstream string, args ...string) *harness.Proxy {
	r.Helper()
	own := r.plane.RESTConfig(controlplane.Feed)
	own.Host, own.CAData = upstream, slices.Concat(own.CAData, r.cas)
	p, err := r.proxies.Start(r.Context(), harness.ProxyOptions{Upstream: own, Args: append([]string{
		"--eager", "configmaps,pods", "--staleness-bound", load.Bound.String(),
		"--consistent-lists=always", "--watches",
	}, args...)}, r.callers...)
	r.must(err)
	return p
}

func (r *rig) object(k kind, name string) kinds.Fields {
	o := k.Object(name)
	if spec, ok := o["spec"].(kinds.Fields); ok && r.grouped {
		spec["schedulingGroup"] = kinds.Fields{"podGroupName": "group"}
	}
	return o
}

func (r *rig) populate() {
	r.Helper()
	create := func(path string, o kinds.Fields) {
		r.must(poll.Retry(r.Context(), "creating "+path, func() error { return r.writer.Ensure(r.Context(), path, o) }))
	}
	create("/api/v1/namespaces", kinds.Namespace(r.ns))
	for _, k := range changing() {
		for i := range names {
			create(k.Path(r.ns), r.object(k, load.NameOf(i)))
		}
	}
}

// load asks and writes until the function that it returns is called, which then waits until all is
// compared.
func (r *rig) load() (quiet func()) {
	ctx, cancel := context.WithCancel(r.Context())
	asks, stop := context.WithCancel(ctx)
	r.gaps.expect(sortList, sortNewest, sortForward, sortDirect)
	var asking, comparing sync.WaitGroup
	comparing.Go(func() { r.Oracle.Work(ctx) })
	asking.Go(func() { r.write(asks) })
	for _, c := range r.clients {
		asking.Go(func() { r.ask(asks, c) })
	}
	asking.Go(func() { r.askNewest(asks) })
	asking.Go(func() { r.askRecent(asks) })
	asking.Go(func() { r.forward(asks) })
	asking.Go(func() { r.askDirect(asks) })
	return sync.OnceFunc(func() {
		stop()
		asking.Wait()
		err := r.Oracle.Drain(ctx, patience)
		cancel()
		comparing.Wait()
		if err != nil {
			r.Error(err)
		}
		r.Tally.Judge(r)
	})
}

// write changes objects, at an undisturbed API server.
func (r *rig) write(ctx context.Context) {
	for turn := 0; poll.Pause(ctx, writeEvery); turn++ {
		k, name := changing()[turn%2], load.NameOf(rand.IntN(names))
		if rand.IntN(8) == 0 {
			_, _ = r.Write(ctx, r.writer, k, http.MethodDelete, load.Delete(k, r.ns, name), nil)
			_, _ = r.Write(ctx, r.writer, k, http.MethodPost, k.Path(r.ns), r.object(k, name))
			continue
		}
		_, _ = r.Touch(ctx, r.writer, k, r.ns, name)
	}
}

// ask asks for lists. It never accepts one that is older than what it has seen, where it says so.
func (r *rig) ask(ctx context.Context, c *ask.Client) {
	seen := map[collection]uint64{}
	for poll.Pause(ctx, askEvery) {
		all := collections()
		q := question{Collection: all[rand.IntN(len(all))]}
		newest, atLeast := r.Ledger.NewestOfAll(), uint64(0)
		switch dice := rand.IntN(10); {
		case dice < 4 || newest == 0 || seen[q.Collection] == 0:
			q.Query = ask.AnyVersion
		case dice < 6:
			q.Query, atLeast = ask.NotOlderThan(newest), newest
		case dice < 8:
			atLeast = seen[q.Collection]
			q.Query = ask.NotOlderThan(atLeast)
		case q.Form == load.AsProtobuf:
			q.Query = ask.Exactly(newest)
		default:
			r.walk(ctx, c, q, newest)
			continue
		}
		if l, _, err := r.put(ctx, c, q, atLeast); err == nil {
			seen[q.Collection] = max(seen[q.Collection], l.Revision)
		}
	}
}

// askNewest asks for the newest state. It does not wait for what is forwarded in any case, and so
// is there when an old state would be given.
func (r *rig) askNewest(ctx context.Context) {
	for turn := 0; poll.Pause(ctx, newestEvery); turn++ {
		all := collections()
		q := question{Collection: all[rand.IntN(len(all))], Query: ask.AnyVersion, Uncounted: true}
		_, _, _ = r.putOf(ctx, sortNewest, r.clients[turn%len(r.clients)], q, 0)
	}
}

// askRecent asks for lists that hold all that was written before, whichever API server is asked.
// What is not proven is forwarded, and may wait for one that stands still: it does not count as an
// outage.
func (r *rig) askRecent(ctx context.Context) {
	for turn := 0; poll.Pause(ctx, askEvery); turn++ {
		all := collections()
		q := question{Collection: all[rand.IntN(len(all))]}
		_, _, _ = r.Put(ctx, r.clients[turn%len(r.clients)], q, false, r.Ledger.NewestOfAll())
	}
}

// walk reads all pages of a state.
func (r *rig) walk(ctx context.Context, c *ask.Client, q question, revision uint64) {
	q.Query, q.Limit = ask.FirstPage(pageSize, ask.Exactly(revision)), pageSize
	page, _, err := r.put(ctx, c, q, revision)
	for err == nil && page.Next != "" {
		q.Query = ask.NextPage(pageSize, page.Next)
		if page, _, err = r.put(ctx, c, q, revision); err == nil && page.Revision != revision {
			r.Tally.Wrong("%s: a page of revision %d after one of %d", q, page.Revision, revision)
		}
	}
}

// put puts a question to listproxy, and says whether the answer came from memory. The error is a
// [poll.Wrong], except for [ask.Answer.NotThereYet].
func (r *rig) put(ctx context.Context, c *ask.Client, q question, atLeast uint64) (l ask.List, memory bool, err error) {
	return r.putOf(ctx, sortList, c, q, atLeast)
}

// putOf is put, of a sort of requests.
func (r *rig) putOf(ctx context.Context, sort string, c *ask.Client, q question, atLeast uint64) (l ask.List, memory bool, err error) {
	starting := r.starting.Load() > 0
	l, a, err := r.Put(ctx, c, q, sort == sortList, atLeast)
	if ctx.Err() != nil {
		return ask.List{}, false, ctx.Err()
	}
	r.gaps.heard(sort, err)
	switch {
	case a.NotThereYet():
		return ask.List{}, false, err
	case err != nil:
		if r.refused(a, starting) {
			r.Tally.Wrong("%s: %s", q, a)
		}
		return ask.List{}, false, poll.Wrong(err.Error())
	case l.Revision < atLeast && !a.FromMemory():
		r.Tally.Wrong("%s: it is of revision %d: %s", q, l.Revision, a.Source())
	}
	return l, a.FromMemory(), nil
}

// refused reports whether an answer says that a request or who sent it is not right, which never is
// true here: tokens stay valid, those of pages, too, since nothing is compacted. starting: an API
// server was being started when it was asked for.
func (r *rig) refused(a ask.Answer, starting bool) bool {
	switch a.Code {
	case http.StatusForbidden:
		return !starting && r.starting.Load() == 0
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusGone:
		return true
	default:
		return false
	}
}

// forward asks for what is never answered from memory. One request that waits, as at an API server
// that stands still, does not keep others from being answered.
func (r *rig) forward(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for turn := 0; poll.Pause(ctx, askEvery); turn++ {
		answered := make(chan struct{})
		all.Go(func() {
			defer close(answered)
			r.forwardOne(ctx, r.clients[turn%len(r.clients)])
		})
		select {
		case <-answered:
		case <-time.After(unanswered):
		}
	}
}

func (r *rig) forwardOne(ctx context.Context, c *ask.Client) {
	starting := r.starting.Load() > 0
	asked := time.Now()
	a, err := c.Do(ctx, http.MethodGet, "/api/v1/namespaces/"+r.ns, nil)
	if ctx.Err() != nil {
		return
	}
	r.heard(sortForward, asked, a, err)
	if r.refused(a, starting) {
		r.Tally.Wrong("GET the namespace: %s", a)
	}
}

// heard notes an answer of a sort that is no list, or that there was none.
func (r *rig) heard(sort string, asked time.Time, a ask.Answer, err error) {
	r.Tally.Heard(asked, a, err, false)
	r.gaps.heard(sort, err)
}

// askDirect asks an API server that nothing happens to: while it does not answer, the machine is to
// blame.
func (r *rig) askDirect(ctx context.Context) {
	for poll.Pause(ctx, askEvery) {
		_, err := r.writer.Do(ctx, http.MethodGet, "/api/v1/namespaces/"+r.ns, nil)
		if ctx.Err() != nil {
			return
		}
		r.gaps.heard(sortDirect, err)
	}
}

// startAPIServer starts an API server that was ended.
func (r *rig) startAPIServer(s *controlplane.APIServer) {
	r.Helper()
	r.starting.Add(1)
	defer r.starting.Add(-1)
	r.must(s.Start(r.Context()))
}

// part begins a part of a test that is named, does it, waits until enough answers were compared
// after it, and says what was seen. An outage of more than limit, and of what an undisturbed API
// server took, is a failure.
func (r *rig) part(name string, limit time.Duration, do func()) seen {
	r.Helper()
	r.must(r.Oracle.Drain(r.Context(), patience))
	r.Tally.Begin()
	r.gaps.begin()
	begun := time.Now()
	do()
	done := r.Tally.Comparisons()
	r.must(poll.Retry(r.Context(), "enough answers from memory after "+name, func() error {
		if n := r.Tally.Comparisons() - done; n < calm {
			return fmt.Errorf("%d were compared", n)
		}
		return nil
	}))
	r.must(r.Oracle.Drain(r.Context(), patience))
	c := seen{r.Tally.Counts(load.Window{}), r.gaps.begin(), 0}
	lost, why := r.Tally.Lost()
	c.lost = lost
	r.Logf("| %s | %d | %d | %.0f %% | %d | %.1f s | %.1f s | %.1f s | (%.0f s)", name, c.Compared, c.Wrong, c.Share(), c.lost,
		c.longest[sortList].Seconds(), c.longest[sortForward].Seconds(), c.Behind.Seconds(), time.Since(begun).Seconds())
	for _, sort := range c.outages(limit) {
		r.Errorf("%s: none of the %s was answered for %v, which is more than %v", name, sort, c.longest[sort], limit)
	}
	for reason, n := range why {
		r.Logf("    not answered %d times: %.300s", n, reason)
	}
	return c
}
