package limits

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// between is the time from one question to the next while something is refused.
	between    = 50 * time.Millisecond
	fwdWarming = "listproxy; fwd=miss; detail=warming"
	fwdStale   = "listproxy; fwd=stale; detail=stale"
)

// tooMany answers as kube-apiserver does when too much is asked of it: not with a Status
// (tooManyRequests in k8s.io/apiserver/pkg/server/filters).
func tooMany(w http.ResponseWriter, after time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)))
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}

// tooManyStatus answers as kube-apiserver does where a handler of its refuses: an eviction, for
// one.
func tooManyStatus(w http.ResponseWriter, after time.Duration) {
	seconds := int(after / time.Second)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"made up by the test",`+
		`"reason":"TooManyRequests","details":{"retryAfterSeconds":%d},"code":429}`+"\n", seconds)
}

// own reports whether a request is made with listproxy's own account.
func own(r *http.Request) bool { return strings.HasPrefix(r.UserAgent(), "listproxy/") }

// ofCaller reports whether it is a caller's, and not a review of what the caller may.
func ofCaller(r *http.Request) bool { return !strings.HasPrefix(r.UserAgent(), "listproxy") }

// turnstile refuses requests of listproxy's own for some resources, and notes what each resource's
// feed did.
type turnstile struct {
	after   time.Duration
	refuses func(*http.Request) bool
	of      map[string]bool // plural names

	mu             sync.Mutex
	last           map[string]time.Time // when each was refused
	asked, refused map[string]int
	early          []string
}

func newTurnstile(after time.Duration, refuses func(*http.Request) bool, plurals ...string) *turnstile {
	t := &turnstile{
		after: after, refuses: refuses,
		of: map[string]bool{}, last: map[string]time.Time{}, asked: map[string]int{}, refused: map[string]int{},
	}
	for _, plural := range plurals {
		t.of[plural] = true
	}
	return t
}

// pass is for a hop's OnRequest.
func (t *turnstile) pass(w http.ResponseWriter, r *http.Request) (answered bool) {
	plural := path.Base(r.URL.Path)
	if !own(r) || !t.of[plural] {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[plural]++
	// The request comes later than it was made, and the one before was answered after it was noted:
	// what looks early is.
	if last, ok := t.last[plural]; ok && time.Since(last) < t.after {
		t.early = append(t.early, fmt.Sprintf("%s, %v after it was refused", r.URL, time.Since(last)))
	}
	if !t.refuses(r) {
		return false
	}
	t.last[plural] = time.Now()
	t.refused[plural]++
	tooMany(w, t.after)
	return true
}

// counts returns how often a feed was refused at least and at most, and how often all were refused
// and asked.
func (t *turnstile) counts() (least, most, refused, asked int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for plural := range t.of {
		n := t.refused[plural]
		if least == 0 || n < least {
			least = n
		}
		most, refused, asked = max(most, n), refused+n, asked+t.asked[plural]
	}
	if len(t.refused) < len(t.of) {
		least = 0
	}
	return least, most, refused, asked
}

// TestTooManyForCallers: a caller who is turned away by kube-apiserver hears it as kube-apiserver
// said it, and listproxy does not ask again in its place.
func TestTooManyForCallers(t *testing.T) {
	r := newRig(t)
	bare := client{ask.MustNew(r, r.hop.RESTConfig(plane.RESTConfig(controlplane.Admin)), 0)}
	const objects = "/api/v1/namespaces/team-a/configmaps"
	object := configMap("refused", "")
	requests := []struct {
		method, target string
		object         any
	}{
		{http.MethodGet, objects, nil},
		{http.MethodGet, "/api/v1/configmaps?resourceVersion=0", nil},
		{http.MethodGet, objects + "?watch=true", nil},
		{http.MethodGet, objects + "/refused", nil},
		{http.MethodPost, objects, object},
		{http.MethodPatch, objects + "/refused", object},
		{http.MethodDelete, objects + "/refused", nil},
	}
	compared := 0
	for name, answer := range map[string]func(http.ResponseWriter, time.Duration){"text": tooMany, "Status": tooManyStatus} {
		var mu sync.Mutex
		asked := 0
		// Feeds too, so that nothing is in memory.
		r.hop.OnRequest(func(w http.ResponseWriter, req *http.Request) bool {
			if !ofCaller(req) && path.Base(req.URL.Path) != "configmaps" {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			if ofCaller(req) {
				asked++
			}
			answer(w, 7*time.Second)
			return true
		})
		for _, q := range requests {
			want, err := bare.Send(t.Context(), q.method, q.target, q.object)
			r.must(err)
			got, err := r.via.Send(t.Context(), q.method, q.target, q.object)
			r.must(err)
			if diff := cmp.Diff(said(want), said(got)); diff != "" || got.Header.Get("Retry-After") != "7" || got.FromMemory() {
				t.Errorf("%s, %s %s: %s: not as kube-apiserver said it (-want +got):\n%s", name, q.method, q.target, got.Source(), diff)
			}
			compared++
		}
		r.hop.OnRequest(nil)
		if asked != 2*len(requests) {
			t.Errorf("%s: %d requests came, directly and by listproxy, of %d each", name, asked, len(requests))
		}
	}
	r.say("429 to callers: %d of them as they were, with code, headers and body, for one request each", compared)
}

// said is an answer without what is of one answer only, or of listproxy.
func said(a ask.Answer) ask.Answer {
	a.Header = maps.Clone(a.Header)
	a.Header.Del("Date")
	a.Header.Del("Cache-Status")
	return a
}

// TestTooManyForLoads: a feed that is refused, at its first question or at its load, comes again
// when it is told to and not before, however often callers ask; and has loaded when it is let.
func TestTooManyForLoads(t *testing.T) {
	harness.Long(t)
	after := time.Duration(scale(5, 2)) * time.Second
	hold := time.Duration(scale(60, 0)) * time.Second
	r := newRig(t, "--self-check-interval", "0") // it asks on its own account
	lists := []string{
		"/api/v1/configmaps", "/api/v1/services", "/apis/apps/v1/deployments", "/apis/batch/v1/jobs",
		"/api/v1/pods", "/api/v1/serviceaccounts", "/apis/apps/v1/replicasets", "/api/v1/persistentvolumeclaims",
	}
	plurals := make([]string, len(lists))
	fromTheFirst := map[string]bool{}
	for i, list := range lists {
		plurals[i] = path.Base(list)
		fromTheFirst[plurals[i]] = i < len(lists)/2
	}
	gate := newTurnstile(after, func(req *http.Request) bool {
		return fromTheFirst[path.Base(req.URL.Path)] || req.URL.Query().Get("sendInitialEvents") != ""
	}, plurals...)
	r.hop.OnRequest(gate.pass)
	begun, compared := time.Now(), 0
	r.must(poll.Try(t.Context(), patience, between, "each feed has been refused often enough", func() error {
		for _, list := range lists {
			a, err := r.via.Do(t.Context(), http.MethodGet, list+"?resourceVersion=0", nil)
			if err != nil {
				return poll.Wrong(err.Error())
			}
			r.same(list, a.Body)
			switch a.Source() {
			case fwdWarming:
				compared++
			case poll.ReviewFailed: // says nothing of the feed
			default:
				return poll.Wrong(list + ": " + a.Source())
			}
		}
		if least, _, _, _ := gate.counts(); least < 3 || time.Since(begun) < hold {
			return errors.New("not yet")
		}
		return nil
	}))
	r.hop.OnRequest(nil)
	refusedFor, ended := time.Since(begun), time.Now()
	bodies := make([][]byte, len(lists))
	r.must(inParallel(len(lists), func(i int) (err error) {
		bodies[i], err = r.via.await(t.Context(), lists[i]+"?resourceVersion=0")
		return err
	}))
	back := time.Since(ended)
	for i, body := range bodies {
		r.same(lists[i], body)
	}
	for _, early := range gate.early {
		t.Errorf("told to wait for %v: %s", after, early)
	}
	least, most, refused, asked := gate.counts()
	r.say("429 with Retry-After %.0f to %d feeds for %.0f s: %d requests, of which %d were refused, %d to %d of a feed, "+
		"%d requests too early; %d lists of callers meanwhile forwarded (warming) and compared; all from memory %.1f s after the end",
		after.Seconds(), len(lists), refusedFor.Seconds(), asked, refused, least, most, len(gate.early), compared, back.Seconds())
}

// believed is how long listproxy goes on at least where it does not hear of APIServices any more
// (apiServicesGrace in the package proxy, less the minute between two bookmarks). After that any
// group could be another server's.
const believed = 90 * time.Second

// TestTooManyForFeeds: what is in memory when its feed is refused, probes and watches, is given for
// no longer than the bound; then lists are forwarded until the feed is let again. Once only the
// feed is refused, and once all that listproxy asks with its own account.
func TestTooManyForFeeds(t *testing.T) {
	harness.Long(t)
	t.Run("of one resource", func(t *testing.T) { refuseFeed(t, false) })
	t.Run("and all else", func(t *testing.T) { refuseFeed(t, true) })
}

func refuseFeed(t *testing.T, all bool) {
	bound := time.Duration(scale(90, 6)) * time.Second
	longer := time.Duration(scale(30, 2)) * time.Second
	// The self-check asks on its own account.
	r := newRig(t, "--self-check-interval", "0", "--staleness-bound", bound.String())
	var f *refusedFeed
	r.must(poll.Try(t.Context(), patience, between, "something from memory while the feed is refused", func() error {
		f = r.refuse(all, bound)
		err := poll.Try(t.Context(), patience, between, "lists are forwarded, for a while", func() error { return f.look(longer) })
		if errors.Is(err, noHit) {
			r.hop.OnRequest(nil)
			return errors.New(err.Error()) // another time it may be new enough
		}
		r.must(err)
		return nil
	}))
	a, err := r.via.reviewed(t.Context(), f.exactly)
	r.must(err)
	if a.FromMemory() != (f.warming == 0) {
		t.Errorf("what was known exactly stays true, for as long as APIServices are believed: %s", a.Source())
	}
	r.same(refusedList, a.Body)
	_, _, refused, _ := f.gate.counts()
	r.hop.OnRequest(nil)
	refusedFor, ended := time.Since(f.begun), time.Now()
	body, err := r.via.await(t.Context(), refusedList+"?resourceVersion=0")
	r.must(err)
	back := time.Since(ended)
	r.same(refusedList, body)
	if !strings.Contains(string(body), f.written) {
		t.Errorf("what was written meanwhile is not in the list: %s", f.written)
	}
	r.say("429 with Retry-After 1 to a feed (to all that listproxy asks: %v) for %.0f s, connections cut before, --staleness-bound %v: "+
		"%d lists from memory, the last asked for after %.1f s; from %.1f s on %d forwarded as stale, and %d as warming; all compared; "+
		"%d requests of the feed refused; from memory %.1f s after the end, with what was written meanwhile",
		all, refusedFor.Seconds(), bound, f.hits, f.lastHit.Seconds(), f.firstForwarded.Seconds(), f.stale, f.warming, refused, back.Seconds())
}

// refusedList is what [refusedFeed] is the feed of.
const refusedList = "/api/v1/configmaps"

// noHit: the newest state, some seconds old when its feed was refused, was too old when it was
// first asked for. So lists were rightly forwarded, which shows nothing.
const noHit = poll.Wrong("lists are forwarded, and none came from memory before")

// refusedFeed is a feed that is refused, with its connections cut, and what callers get meanwhile.
type refusedFeed struct {
	*rig
	all     bool // that listproxy asks is refused
	bound   time.Duration
	gate    *turnstile
	exactly string // asks for a state that was in memory before
	// begun is when it began. No state is newer: the last question of a feed that is answered was
	// put before.
	begun   time.Time
	written string // an object of which the feed did not hear

	hits, stale, warming    int
	lastHit, firstForwarded time.Duration // since begun
}

// refuse begins when all is well.
func (r *rig) refuse(all bool, bound time.Duration) *refusedFeed {
	r.Helper()
	first, err := r.via.await(r.Context(), refusedList+"?resourceVersion=0")
	r.must(err)
	r.same(refusedList, first)
	f := &refusedFeed{
		rig: r, all: all, bound: bound,
		gate:    newTurnstile(time.Second, func(*http.Request) bool { return true }, path.Base(refusedList)),
		exactly: refusedList + "?resourceVersionMatch=Exact&resourceVersion=" + ask.Answer{Body: first}.Meta().ResourceVersion,
	}
	r.hop.OnRequest(func(w http.ResponseWriter, req *http.Request) bool {
		if f.gate.pass(w, req) {
			return true
		}
		refused := all && own(req)
		if refused {
			tooMany(w, time.Second)
		}
		return refused
	})
	f.begun = time.Now()
	r.hop.CutAll()
	return f
}

// look puts one question. The error is nil when lists have been forwarded for long enough.
func (f *refusedFeed) look(longer time.Duration) error {
	sent := time.Since(f.begun)
	a, err := f.via.Do(f.Context(), http.MethodGet, refusedList+"?resourceVersion=0", nil)
	came := time.Since(f.begun)
	switch {
	// The first of all, and the review of its caller's rights, may have been on connections that
	// were cut.
	case err != nil && f.hits == 0:
		return err
	case err != nil:
		return poll.Wrong(err.Error())
	case f.hits == 0 && (a.Source() == fwdStale || a.Source() == fwdWarming && f.all && came > believed):
		return noHit
	case !a.FromMemory() && f.hits == 0:
		return errors.New("nothing from memory yet: " + a.Source())
	case a.FromMemory() && (sent >= f.bound || f.stale+f.warming > 0):
		return poll.Wrong(fmt.Sprintf("from memory, asked %v after feeds were refused; forwarded before: %d times", sent, f.stale+f.warming))
	case a.FromMemory():
		f.hits, f.lastHit = f.hits+1, sent
	case a.Source() == fwdStale && f.warming == 0:
		f.stale++
	case a.Source() == fwdWarming && f.all && came > believed:
		f.warming++
	case a.Source() == poll.ReviewFailed: // says nothing of the feed
		f.same(refusedList, a.Body)
		return errors.New("not yet: " + a.Source())
	default:
		return poll.Wrong(fmt.Sprintf("%s, %v after feeds were refused", a.Source(), came))
	}
	f.same(refusedList, a.Body)
	if f.written == "" {
		a, err := f.direct.Do(f.Context(), http.MethodPost, "/api/v1/namespaces/team-a/configmaps", kinds.Fields{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": kinds.Fields{"generateName": "meanwhile-"},
		})
		if err != nil {
			return poll.Wrong(err.Error())
		}
		f.written = a.Meta().Name
	}
	if f.stale+f.warming == 1 {
		f.firstForwarded = came
	}
	if f.firstForwarded == 0 || came < f.firstForwarded+longer {
		return errors.New("not yet: " + a.Source())
	}
	return nil
}
