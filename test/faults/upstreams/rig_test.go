package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

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

	// bound is the --staleness-bound, the shortest there is.
	bound = 6 * time.Second

	// The sorts of requests whose gaps are measured.
	sortList    = "lists"
	sortNewest  = "lists of any state"
	sortForward = "forwards"
	sortDirect  = "questions to an undisturbed API server"

	// For how long there may be no answer at all, of either sort. What is measured is far below: these find
	// an outage, also on a slow machine.
	noticedAtOnce = 15 * time.Second // where a connection breaks
	noticedLate   = 30 * time.Second // where nothing is heard any more
)

// rig is listproxies behind a balancer, and clients that ask them.
type rig struct {
	*testing.T
	plane    *controlplane.ControlPlane
	writer   *ask.Client // of an undisturbed API server
	balancer *hop.Balancer
	certs    string // directory of the serving certificate, the same for all listproxies
	ca       []byte
	clients  []*ask.Client // with one token and with the other
	callers  []*rest.Config
	oracle   *verifier
	ns       string
	// grouped: pods have a field that only newer API servers know.
	grouped bool

	ledger oracle.Ledger[string] // by path of the writes
	// starting is how many API servers are being started: they refuse everybody until they have read their roles.
	starting atomic.Int32

	proxies harness.Proxies
}

// newRig makes everything but listproxies. Answers are compared with those of the API server direct, to
// which all is written, and where there are more of them may be what those say.
func newRig(t *testing.T, plane *controlplane.ControlPlane, direct ...*rest.Config) *rig {
	t.Helper()
	r := &rig{T: t, grouped: len(direct) > 1, plane: plane, certs: t.TempDir(), ns: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))}
	var undisturbed []*ask.Client
	for _, cfg := range direct {
		c, err := ask.New(cfg, requestTimeout)
		r.must(err)
		undisturbed = append(undisturbed, c)
	}
	r.writer, r.oracle = undisturbed[0], newVerifier(undisturbed...)

	var err error
	r.balancer, err = hop.StartBalancer()
	r.must(err)
	t.Cleanup(r.balancer.Close)
	_, caPath, err := certs.LoadOrCreate("", "", r.certs, nil, time.Now())
	r.must(err)
	r.ca, err = os.ReadFile(caPath)
	r.must(err)

	account, err := plane.CreateServiceAccountToken(t.Context(), controlplane.TeamA, "lister")
	r.must(err)
	r.must(plane.Apply(t.Context(), `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"metadata": {"name": "lister"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": [{"kind": "ServiceAccount", "name": "lister", "namespace": "`+controlplane.TeamA+`"}]}`))
	for _, token := range []string{plane.Token(controlplane.Admin), account} {
		cfg := r.through()
		cfg.BearerToken = token
		c, err := ask.New(cfg, requestTimeout)
		r.must(err)
		r.callers = append(r.callers, cfg)
		r.clients = append(r.clients, c)
	}
	r.populate()
	t.Cleanup(func() {
		for _, plural := range []string{"configmaps", "pods"} {
			_, _ = r.writer.Send(context.Background(), http.MethodDelete, r.path(plural)+"?gracePeriodSeconds=0", nil)
		}
	})
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// through returns the configuration of a client that goes through the balancer to listproxy.
func (r *rig) through() *rest.Config {
	cfg := r.plane.RESTConfig(controlplane.Admin)
	cfg.Host, cfg.CAData = "https://"+r.balancer.Address(), r.ca
	return cfg
}

// start runs one more listproxy, waits until it is ready, and lets clients come to it.
func (r *rig) start(upstream string, args ...string) *harness.Proxy {
	r.Helper()
	own := r.plane.RESTConfig(controlplane.Feed)
	own.Host = upstream
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	p, err := harness.StartProxy(ctx, harness.ProxyOptions{Upstream: own, Args: append([]string{
		"--tls-cert-file", filepath.Join(r.certs, "tls.crt"), "--tls-private-key-file", filepath.Join(r.certs, "tls.key"),
		"--eager", "configmaps,pods", "--upstream-settle", "3s", "--staleness-bound", bound.String(),
	}, args...)})
	r.must(err)
	for _, caller := range r.callers {
		p.RESTConfig(caller) // introduces it, and says what must not be emitted
	}
	r.proxies.Add(p)
	r.balancer.Add(p.Address())
	return p
}

func (r *rig) path(plural string) string { return "/api/v1/namespaces/" + r.ns + "/" + plural }

func (r *rig) object(plural, name string) map[string]any {
	o := map[string]any{"metadata": map[string]any{"name": name}}
	if plural == "pods" {
		spec := map[string]any{"containers": []any{map[string]any{"name": "main", "image": "registry.test/main:1"}}}
		if r.grouped {
			spec["schedulingGroup"] = map[string]any{"podGroupName": "group"}
		}
		o["spec"] = spec
	} else {
		o["data"] = map[string]any{"text": "<&>\u2028é"}
	}
	return o
}

func (r *rig) populate() {
	r.Helper()
	create := func(path string, o map[string]any) {
		r.must(poll.Retry(r.Context(), "creating "+path, func() error {
			a, err := r.writer.Send(r.Context(), http.MethodPost, path, o)
			if err == nil && a.Code/100 != 2 && a.Code != http.StatusConflict {
				err = errors.New(a.String())
			}
			return err
		}))
	}
	create("/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": r.ns}})
	for _, plural := range []string{"configmaps", "pods"} {
		for i := range names {
			create(r.path(plural), r.object(plural, nameOf(i)))
		}
	}
}

func nameOf(i int) string { return fmt.Sprintf("object-%02d", i) }

// load asks and writes until the function that it returns is called, which then waits until all is compared.
func (r *rig) load() (quiet func()) {
	ctx, cancel := context.WithCancel(r.Context())
	asks, stop := context.WithCancel(ctx)
	r.oracle.expect(sortList, sortNewest, sortForward, sortDirect)
	var asking, comparing sync.WaitGroup
	comparing.Go(func() { r.oracle.Work(ctx, verifiers, r.oracle.compare) })
	asking.Go(func() { r.write(asks) })
	for _, c := range r.clients {
		asking.Go(func() { r.ask(asks, c) })
	}
	asking.Go(func() { r.askNewest(asks) })
	asking.Go(func() { r.forward(asks) })
	asking.Go(func() { r.askDirect(asks) })
	return sync.OnceFunc(func() {
		stop()
		asking.Wait()
		err := r.oracle.Drain(ctx, patience)
		cancel()
		comparing.Wait()
		if err != nil {
			r.Error(err)
		}
		for i, mistake := range r.oracle.found() {
			if i == 10 {
				r.Error("… and more")
				break
			}
			r.Error(mistake)
		}
	})
}

// write changes objects, at an undisturbed API server.
func (r *rig) write(ctx context.Context) {
	for turn := 0; poll.Pause(ctx, writeEvery); turn++ {
		plural, name := []string{"configmaps", "pods"}[turn%2], nameOf(rand.IntN(names))
		if rand.IntN(8) == 0 {
			_, _ = r.writer.Send(ctx, http.MethodDelete, r.path(plural)+"/"+name+"?gracePeriodSeconds=0", nil)
			_, _ = r.change(ctx, r.writer, http.MethodPost, r.path(plural), r.object(plural, name))
			continue
		}
		_, _ = r.touch(ctx, r.writer, plural, name)
	}
}

// touch changes an object and notes the revision.
func (r *rig) touch(ctx context.Context, c *ask.Client, plural, name string) (ask.Answer, error) {
	return r.change(ctx, c, http.MethodPatch, r.path(plural)+"/"+name,
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{"turn": strconv.Itoa(rand.Int())}}})
}

// change writes an object and notes the revision.
func (r *rig) change(ctx context.Context, c *ask.Client, method, path string, object any) (ask.Answer, error) {
	a, err := c.Send(ctx, method, path, object)
	var written struct {
		Metadata struct{ ResourceVersion string }
	}
	if err == nil && json.Unmarshal(a.Body, &written) == nil {
		if revision, err := strconv.ParseUint(written.Metadata.ResourceVersion, 10, 64); err == nil {
			r.ledger.Confirmed(path, revision)
		}
	}
	return a, err
}

// ask asks for lists. It never accepts one that is older than what it has seen, where it says so.
func (r *rig) ask(ctx context.Context, c *ask.Client) {
	seen := map[collection]uint64{}
	for poll.Pause(ctx, askEvery) {
		all := collections()
		q := question{collection: all[rand.IntN(len(all))]}
		newest, atLeast := r.ledger.NewestOfAll(), uint64(0)
		switch dice := rand.IntN(10); {
		case dice < 4 || newest == 0 || seen[q.collection] == 0:
			q.query = ask.AnyVersion
		case dice < 6:
			q.query, atLeast = ask.NotOlderThan(newest), newest
		case dice < 8:
			atLeast = seen[q.collection]
			q.query = ask.NotOlderThan(atLeast)
		case q.accept == ask.Protobuf:
			q.query, q.fixed = ask.Exactly(newest), true
		default:
			r.walk(ctx, c, q, newest)
			continue
		}
		if l, _, err := r.put(ctx, c, q, atLeast); err == nil {
			seen[q.collection] = max(seen[q.collection], l.Revision)
		}
	}
}

// askNewest asks for the newest state. It does not wait for what is forwarded in any case, and so is there when an old state would
// be given.
func (r *rig) askNewest(ctx context.Context) {
	for turn := 0; poll.Pause(ctx, newestEvery); turn++ {
		all := collections()
		q := question{collection: all[rand.IntN(len(all))], query: ask.AnyVersion}
		_, _, _ = r.putOf(ctx, sortNewest, r.clients[turn%len(r.clients)], q, 0)
	}
}

// walk reads all pages of a state.
func (r *rig) walk(ctx context.Context, c *ask.Client, q question, revision uint64) {
	q.query, q.fixed = ask.FirstPage(pageSize, ask.Exactly(revision)), true
	page, _, err := r.put(ctx, c, q, revision)
	for err == nil && page.Next != "" {
		q.query = ask.NextPage(pageSize, page.Next)
		if page, _, err = r.put(ctx, c, q, revision); err == nil && page.Revision != revision {
			r.oracle.wrong("%s: a page of revision %d after one of %d", q, page.Revision, revision)
		}
	}
}

// put puts a question to listproxy, and says whether the answer came from memory. The error is a [poll.Wrong] but for [ask.Answer.NotThereYet].
func (r *rig) put(ctx context.Context, c *ask.Client, q question, atLeast uint64) (l ask.List, memory bool, err error) {
	return r.putOf(ctx, sortList, c, q, atLeast)
}

// putOf is put, of a sort of requests.
func (r *rig) putOf(ctx context.Context, sort string, c *ask.Client, q question, atLeast uint64) (l ask.List, memory bool, err error) {
	asked, starting := time.Now(), r.starting.Load() > 0
	a, err := c.GetAs(ctx, q.accept, q.target())
	if ctx.Err() != nil {
		return ask.List{}, false, ctx.Err()
	}
	r.oracle.heard(sort, a, err)
	switch {
	case err != nil:
		return ask.List{}, false, poll.Wrong(err.Error())
	case a.NotThereYet():
		return ask.List{}, false, errors.New(a.String())
	case a.Code != http.StatusOK:
		if a.FromMemory() || r.refused(a, starting) {
			r.oracle.wrong("%s: %s", q, a)
		}
		return ask.List{}, false, poll.Wrong(a.String())
	}
	l, err = ask.ReadList(q.accept, a.Body)
	if err != nil {
		r.oracle.wrong("%s: not a list: %v: %s", q, err, a)
		return ask.List{}, false, poll.Wrong(err.Error())
	}
	if l.Revision < atLeast {
		r.oracle.wrong("%s: it is of revision %d: %s", q, l.Revision, a.Source())
	}
	if !a.FromMemory() {
		return l, false, nil
	}
	if !q.fixed {
		r.judgeAge(q, l.Revision, asked)
	}
	r.oracle.Add(witness{q.at(l.Revision), a.Body, asked, sort})
	return l, true, nil
}

// judgeAge holds a state that came from memory as the newest one against what was written when.
func (r *rig) judgeAge(q question, revision uint64, asked time.Time) {
	behind := r.ledger.Behind(revision, asked)
	r.oracle.lag(behind)
	if oracle.TooOld(behind, bound) {
		r.oracle.wrong("%s: it is too old: of revision %d, which the API servers had left %v before it was asked for", q, revision, behind)
	}
}

// refused reports whether an answer says that a request or who sent it is not right, which never is true here: tokens
// stay valid, those of pages, too, since nothing is compacted. starting: an API server was being started when it was asked for.
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

// forward asks for what is never answered from memory. One request that waits, as at an API server that stands still, does not
// keep others from being answered.
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
	a, err := c.GetAs(ctx, ask.JSON, "/api/v1/namespaces/"+r.ns)
	if ctx.Err() != nil {
		return
	}
	r.oracle.heard(sortForward, a, err)
	if err == nil && r.refused(a, starting) {
		r.oracle.wrong("GET the namespace: %s", a)
	}
}

// askDirect asks an API server that nothing happens to: while it does not answer, the machine is to blame.
func (r *rig) askDirect(ctx context.Context) {
	for poll.Pause(ctx, askEvery) {
		a, err := r.writer.GetAs(ctx, ask.JSON, "/api/v1/namespaces/"+r.ns)
		if ctx.Err() != nil {
			return
		}
		r.oracle.heardDirect(a, err)
	}
}

// startAPIServer starts an API server that was ended.
func (r *rig) startAPIServer(s *controlplane.APIServer) {
	r.Helper()
	r.starting.Add(1)
	defer r.starting.Add(-1)
	r.must(s.Start(r.Context()))
}

// part begins a part of a test that is named, does it, waits until enough answers were compared after
// it, and says what was seen. An outage of more than limit, and of what an undisturbed API server took, is a failure.
func (r *rig) part(name string, limit time.Duration, do func()) counts {
	r.Helper()
	r.must(r.oracle.Drain(r.Context(), patience))
	r.oracle.begin()
	begun := time.Now()
	do()
	done := r.oracle.comparisons()
	r.must(poll.Retry(r.Context(), "enough answers from memory after "+name, func() error {
		if n := r.oracle.comparisons() - done; n < calm {
			return fmt.Errorf("%d were compared", n)
		}
		return nil
	}))
	r.must(r.oracle.Drain(r.Context(), patience))
	why := r.oracle.why()
	c := r.oracle.begin()
	r.Logf("| %s | %d | %d | %.0f %% | %d | %.1f s | %.1f s | %.1f s | (%.0f s)", name, c.compared, len(r.oracle.found()),
		100*float64(c.hits)/float64(max(1, c.answers)), c.lost, c.longest[sortList].Seconds(), c.longest[sortForward].Seconds(), c.behind.Seconds(), time.Since(begun).Seconds())
	for _, sort := range c.outages(limit) {
		r.Errorf("%s: none of the %s was answered for %v, which is more than %v", name, sort, c.longest[sort], limit)
	}
	for reason, n := range why {
		r.Logf("    not answered %d times: %.300s", n, reason)
	}
	return c
}
