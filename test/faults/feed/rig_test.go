package feed

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// usualBound is the --staleness-bound of all tests but those about staleness: no machine is so
	// slow that a state which is asked for once has grown old by then.
	usualBound = time.Minute
	// longWindow is the --history-window of all tests: longer than any of them waits between
	// hearing of a revision and asking for it.
	longWindow = "15m"
	// shortestBound is the shortest there is, for tests about staleness.
	shortestBound = 6 * time.Second
)

// rig is a listproxy of its own, and the hop between it and the API server.
type rig struct {
	*cluster
	t       *testing.T
	options rigOptions
	hop     *hop.Hop
	proxy   *harness.Proxy
	// admin asks listproxy, as a user who may do everything.
	admin *ask.Client

	gate hop.Gate // shut while the feed is frozen

	mu    sync.Mutex
	seen  []request
	fault func(w http.ResponseWriter, r *http.Request) bool
	line  func(r *http.Request, line []byte) ([]byte, error)
}

// request is one that the feed sent.
type request struct {
	path  string
	query url.Values
}

// rigOptions say what is not as usual.
type rigOptions struct {
	token string        // the feed's, if it is not the usual one
	bound time.Duration // --staleness-bound, if it is not the usual one
	args  []string
	fault func(w http.ResponseWriter, r *http.Request) bool
	// cold: do not wait until listproxy is ready.
	cold bool
}

func newRig(t *testing.T, c *cluster, o rigOptions) *rig {
	t.Helper()
	h, err := hop.Start(c.URL(), c.CA())
	expect.NoError(t, err)
	r := &rig{cluster: c, t: t, options: o, hop: h, fault: o.fault}
	h.OnRequest(r.onRequest)
	h.OnLine(r.onLine)

	own := h.RESTConfig(c.RESTConfig(controlplane.Feed))
	if o.token != "" {
		own.BearerToken = o.token
	}
	start := harness.StartProxy
	if o.cold {
		start = harness.LaunchProxy
	}
	// Tests count what listproxy asks for.
	bound := cmp.Or(o.bound, usualBound).String()
	args := append([]string{"--staleness-bound", bound, "--self-check-interval", "0", "--history-window", longWindow}, o.args...)
	r.proxy, err = start(t.Context(), harness.ProxyOptions{Upstream: own, Args: args})
	if err != nil {
		h.Close()
		t.Fatal(err)
	}
	t.Cleanup(r.end)
	r.admin = ask.MustNew(t, r.proxy.RESTConfig(c.RESTConfig(controlplane.Admin)), patience)
	return r
}

func (r *rig) end() {
	r.thaw()
	if r.t.Failed() {
		r.t.Logf("listproxy's log:\n%s", r.proxy.Told())
	}
	if err := r.proxy.Stop(); err != nil {
		r.t.Error(err)
	}
	r.hop.Close()
}

// of reports whether a request of the feed is about a resource.
func of(r *http.Request, k kind) bool {
	return hop.Own(r) && strings.HasPrefix(r.URL.Path, strings.TrimSuffix(k.Path(""), k.Plural)) &&
		strings.HasSuffix(r.URL.Path, "/"+k.Plural)
}

func (r *rig) onRequest(w http.ResponseWriter, req *http.Request) bool {
	if !hop.Own(req) {
		return false
	}
	r.mu.Lock()
	r.seen = append(r.seen, request{path: req.URL.Path, query: req.URL.Query()})
	fault := r.fault
	r.mu.Unlock()
	if r.gate.Pass(req.Context()) != nil {
		return true
	}
	return fault != nil && fault(w, req)
}

func (r *rig) onLine(req *http.Request, line []byte) ([]byte, error) {
	if !hop.Own(req) {
		return line, nil
	}
	if err := r.gate.Pass(req.Context()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	change := r.line
	r.mu.Unlock()
	if change == nil {
		return line, nil
	}
	return change(req, line)
}

func (r *rig) thaw() { r.gate.Open() }

// cutOff ends the feed's connections, and refuses what it asks until back is called.
func (r *rig) cutOff() (back func()) {
	var away atomic.Bool
	away.Store(true)
	r.onFault(func(w http.ResponseWriter, _ *http.Request) bool {
		return away.Load() && hop.Refuse(w, http.StatusServiceUnavailable)
	})
	r.hop.CutAll()
	return func() { away.Store(false) }
}

// onFault sets what may answer a request of the feed in the API server's place. nil: nothing.
func (r *rig) onFault(f func(w http.ResponseWriter, r *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
}

// changeLines sets what changes the lines of the feed's watches. nil: nothing.
func (r *rig) changeLines(f func(r *http.Request, line []byte) ([]byte, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line = f
}

// count says how many requests of the feed for a resource were of a sort.
func (r *rig) count(k kind, sort func(q url.Values) bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.seen {
		u := &http.Request{URL: &url.URL{Path: s.path}, Header: http.Header{"User-Agent": {"listproxy/"}}}
		if of(u, k) && sort(s.query) {
			n++
		}
	}
	return n
}

// The sorts of requests that a feed sends.
func fullLoad(q url.Values) bool {
	return q.Get("sendInitialEvents") == "true" ||
		q.Has("limit") && !learns(q) && !q.Has("continue") && !q.Has("resourceVersion")
}

// learns is true for the list of a few objects from which a feed learns what lists look like.
func learns(q url.Values) bool { return q.Get("limit") == "20" && !q.Has("resourceVersion") }

func anyWatch(q url.Values) bool { return q.Get("watch") == "true" }

// isProbe is true for a read of the name that cannot exist, with or without other fields.
func isProbe(q url.Values) bool {
	return strings.HasPrefix(q.Get("fieldSelector"), "metadata.name=~listproxy-probe")
}

// ask asks listproxy for a list and holds a 200 against the API server's own. It asks again
// where the answer broke off or the API server could not be reached, as it is here at times.
func (r *rig) ask(path string, q url.Values) ask.Answer {
	r.t.Helper()
	var a ask.Answer
	r.until("an answer", func() (err error) {
		a, err = r.try(path, q)
		return err
	})
	return a
}

// try is ask, once.
func (r *rig) try(path string, q url.Values) (ask.Answer, error) {
	a, err := r.admin.Get(r.t.Context(), path+"?"+q.Encode())
	if err != nil {
		return a, r.brokeOff(path, q, a, err)
	}
	if a.Code == http.StatusServiceUnavailable && strings.Contains(string(a.Body), "listproxy could not") {
		return a, errors.New(a.String())
	}
	return a, r.verify(r.t.Context(), path, q, a)
}

// brokeOff returns the error of a question. No answer from memory breaks off.
func (r *rig) brokeOff(path string, q url.Values, a ask.Answer, err error) error {
	if a.FromMemory() && r.t.Context().Err() == nil {
		return poll.Wrong(fmt.Sprintf("%s?%s: the answer broke off: %v: %s", path, q.Encode(), err, a))
	}
	return err
}

// until waits for look to have no error.
func (r *rig) until(what string, look func() error) {
	r.t.Helper()
	if err := poll.Retry(r.t.Context(), what, look); err != nil {
		r.t.Fatal(err)
	}
}

// await asks again until the answer comes from where it should, and returns it.
func (r *rig) await(source, path string, q url.Values) ask.Answer {
	r.t.Helper()
	var a ask.Answer
	r.until("waiting for "+source, func() (err error) {
		if a, err = r.try(path, q); err == nil && a.Source() != source {
			err = fmt.Errorf("%s?%s came from %q", path, q.Encode(), a.Source())
		}
		return err
	})
	return a
}

// expect asks once: the answer must come from there.
func (r *rig) expect(source, path string, q url.Values) ask.Answer {
	r.t.Helper()
	a, err := r.comes(source, path, q)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// The values of Cache-Status.
const (
	hitAny          = "listproxy; hit; detail=any"
	hitNotOlderThan = "listproxy; hit; detail=not-older-than"
	hitExact        = "listproxy; hit; detail=exact"
	hitContinue     = "listproxy; hit; detail=continue"
	fwdHistory      = "listproxy; fwd=miss; detail=history"
	fwdNotProven    = "listproxy; fwd=miss; detail=not-proven"
	fwdWarming      = "listproxy; fwd=miss; detail=warming"
	fwdStale        = "listproxy; fwd=stale; detail=stale"
	fwdForm         = "listproxy; fwd=bypass; detail=form"
	fwdNotPermitted = "listproxy; fwd=bypass; detail=not-permitted"
	fwdAggregated   = "listproxy; fwd=bypass; detail=unknown-resource"
)

// gaveUp returns what the rig's listproxy says of having given up a collection because the upstream
// took too long for an answer. It has to: what it cannot prove in time it drops, and loads again.
func (r *rig) gaveUp(k kind) []string {
	var lines []string
	for line := range strings.Lines(r.proxy.Log()) {
		if !strings.Contains(line, `msg="collection cannot be followed" collection="`+k.Plural+".") {
			continue
		}
		for _, cause := range []string{
			"the loaded state could not be compared with the upstream's",
			"context deadline exceeded",
		} {
			if strings.Contains(line, cause) {
				lines = append(lines, line)
				break
			}
		}
	}
	return lines
}

// unhurried fails with the error of look, which is that the feed loaded more often than it had to,
// or lost what it knew. If listproxy has given the collection up because all took too long here,
// look has seen nothing of what it is for, and is run once more, with a rig and a namespace of its
// own. A listproxy that gives up each time fails.
func (r *rig) unhurried(t *testing.T, k kind, namespace string, look func(r *rig, namespace string) error) {
	t.Helper()
	err := look(r, namespace)
	if late := r.gaveUp(k); err != nil && len(late) > 0 {
		t.Logf("once more, after %v\n%s", err, strings.Join(late, ""))
		again := newRig(t, r.cluster, r.options)
		err = look(again, again.namespace(t, namespace+"-again-"+k.Plural))
	}
	if err != nil {
		t.Error(err)
	}
}

// comes is expect with an error for who has more to say.
func (r *rig) comes(source, path string, q url.Values) (ask.Answer, error) {
	r.t.Helper()
	a := r.ask(path, q)
	if a.Source() != source {
		return a, fmt.Errorf("%s?%s came from %q, not %q", path, q.Encode(), a.Source(), source)
	}
	return a, nil
}

// known returns an error if one of the revisions is not known. While definitions are read again, as
// after a cut connection, nobody can say: the answer is then forwarded.
func (r *rig) known(list string, revisions ...string) error {
	r.t.Helper()
	for _, revision := range revisions {
		if err := poll.Retry(r.t.Context(), "revision "+revision, func() error {
			a, err := r.comes(hitExact, list, exactly(revision))
			if err != nil && a.Source() != fwdWarming {
				return poll.Wrong(err.Error())
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// loaded returns an error if the state was not loaded so many times.
func (r *rig) loaded(k kind, wanted int) error {
	if n := r.count(k, fullLoad); n != wanted {
		return fmt.Errorf("the state was loaded %d times, not %d", n, wanted)
	}
	return nil
}
