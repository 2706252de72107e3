package feed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// Rule 2: the first state comes as a streaming list where the upstream has it.
func TestStreamingLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared, rigOptions{})
	r.unhurried(t, configMaps, r.namespace(t, "load-streaming"), func(r *rig, ns string) error {
		if err := loadAndWalk(t, r, configMaps, ns); err != nil {
			return err
		}
		if n := r.count(configMaps, func(q url.Values) bool { return q.Get("sendInitialEvents") == "true" }); n != 1 {
			return fmt.Errorf("%d streaming lists, not one", n)
		}
		return r.loaded(configMaps, 1)
	})
}

// Where the upstream refuses streaming lists, the first state comes page by page; a 410 in the
// middle begins again.
func TestPaginatedLoad(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for _, k := range []kind{configMaps, widgets} {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			var pages, expired atomic.Int32
			r := newRig(t, shared, rigOptions{fault: func(w http.ResponseWriter, req *http.Request) bool {
				q := req.URL.Query()
				switch {
				case q.Has("sendInitialEvents"):
					return hop.Refuse(w, http.StatusUnprocessableEntity)
				case !of(req, k) || !q.Has("limit") || q.Has("resourceVersion") || learns(q):
					return false
				case q.Has("continue") && pages.Add(1) == 2:
					expired.Add(1)
					return hop.Refuse(w, http.StatusGone)
				}
				q.Set("limit", "3") // the feed's own pages would hold all there is
				req.URL.RawQuery = q.Encode()
				return false
			}})
			r.unhurried(t, k, r.namespace(t, "load-"+k.Plural), func(r *rig, ns string) error { return loadAndWalk(t, r, k, ns) })
			if pages.Load() < 4 || expired.Load() != 1 {
				t.Errorf("the load took %d pages and met %d times a 410: this test has shown nothing", pages.Load(), expired.Load())
			}
		})
	}
}

// loadAndWalk makes listproxy load a resource that holds some objects, and asks for it in all
// ways. It returns an error if something of it is not known.
func loadAndWalk(t *testing.T, r *rig, k kind, ns string) error {
	t.Helper()
	for i := range 10 {
		r.create(t, k, ns, fmt.Sprintf("object-%d", i))
	}
	r.remove(t, k, ns, "object-5")
	revision := r.touch(t, k, ns, "object-3", "now")
	r.await(hitAny, k.Path(""), anyVersion())
	a := r.await(hitNotOlderThan, k.Path(ns), notOlderThan(revision))
	for _, path := range []string{k.Path(""), k.Path(ns)} {
		if err := walk(r, path, a.Meta().ResourceVersion); err != nil {
			return err
		}
	}
	// And the watch goes on from there.
	revision = r.create(t, k, ns, "later")
	r.await(hitNotOlderThan, k.Path(ns), notOlderThan(revision))
	return nil
}

// walk reads all pages of a list at a revision. It returns an error if they do not all come from
// memory.
func walk(r *rig, path, revision string) error {
	r.t.Helper()
	a, err := r.comes(hitExact, path, firstPage(revision))
	for err == nil && a.Meta().Continue != "" {
		a, err = r.comes(hitContinue, path, query("limit=3", "continue="+a.Meta().Continue))
	}
	return err
}

// streamsInitialEvents is true for a streaming list.
func streamsInitialEvents(q url.Values) bool { return q.Get("sendInitialEvents") == "true" }

// firstPages is true for the first page of a load page by page.
func firstPages(q url.Values) bool { return fullLoad(q) && !streamsInitialEvents(q) }

// errorOf is an ERROR event of code 500, in the form that a watch wants. From 1.34 on
// kube-apiserver begins streaming lists with one where etcd cannot be asked for progress (before
// 3.4.31, and from 3.5.0 to 3.5.12).
func errorOf(req *http.Request) []byte {
	return hop.ErrorEvent(http.StatusInternalServerError, strings.Contains(req.Header.Get("Accept"), protobufType))
}

// TestStreamingListsThatFail: a resource whose streaming lists end with an error is loaded page by
// page, in every form.
func TestStreamingListsThatFail(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	forms := []string{"application/json", protobufType, "application/json" + metadataOf, protobufType + metadataOf}
	tests := []struct {
		name  string
		kind  kind
		fault func(w http.ResponseWriter, req *http.Request) bool
		line  func(r *rig) func(req *http.Request, line []byte) ([]byte, error)
	}{
		{name: "they begin with an ERROR event", kind: limitRanges, fault: func(w http.ResponseWriter, req *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			if accept := req.Header.Get("Accept"); strings.Contains(accept, protobufType) {
				w.Header().Set("Content-Type", protobufType+";stream=watch")
			}
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write(errorOf(req))
			return true
		}},
		{name: "they are refused with 500", kind: podTemplates, fault: func(w http.ResponseWriter, _ *http.Request) bool {
			return hop.Refuse(w, http.StatusInternalServerError)
		}},
		{name: "an ERROR event comes after some objects", kind: resourceQuotas, line: func(*rig) func(*http.Request, []byte) ([]byte, error) {
			var mu sync.Mutex
			told := map[*http.Request]int{}
			return func(req *http.Request, line []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				if told[req]++; told[req] <= 2 {
					return line, nil
				}
				return errorOf(req), io.EOF
			}
		}},
	}
	c := ownCluster(t)
	ns := c.namespace(t, "streams-fail")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for i := range 10 {
				c.create(t, tt.kind, ns, fmt.Sprintf("object-%d", i))
			}
			r := newRig(t, c, rigOptions{})
			var failed atomic.Int32
			ofList := func(req *http.Request) bool { return of(req, tt.kind) && streamsInitialEvents(req.URL.Query()) }
			if tt.fault != nil {
				r.onFault(func(w http.ResponseWriter, req *http.Request) bool {
					if !ofList(req) {
						return false
					}
					failed.Add(1)
					return tt.fault(w, req)
				})
			}
			if tt.line != nil {
				change := tt.line(r)
				r.changeLines(func(req *http.Request, line []byte) ([]byte, error) {
					if !ofList(req) {
						return line, nil
					}
					line, err := change(req, line)
					if err != nil {
						failed.Add(1)
					}
					return line, err
				})
			}
			for _, accept := range forms {
				err := poll.Retry(t.Context(), "a list from memory, as "+accept, func() error {
					a, err := r.admin.GetAs(t.Context(), accept, tt.kind.Path("")+"?resourceVersion=0")
					if err == nil && a.Source() != hitAny {
						err = fmt.Errorf("after %d streaming lists and %d loads by pages it came from %q",
							r.count(tt.kind, streamsInitialEvents), r.count(tt.kind, firstPages), a.Source())
					}
					return err
				})
				expect.NoError(t, err)
			}
			t.Logf("%d streaming lists, of which %d failed, and %d loads by pages, for %d feeds",
				r.count(tt.kind, streamsInitialEvents), failed.Load(), r.count(tt.kind, firstPages), len(forms))
			if n := int(failed.Load()); n < len(forms) {
				t.Errorf("%d streaming lists failed: this test has shown nothing", n)
			}
			// And the watches go on from there.
			revision := r.touch(t, tt.kind, ns, "object-3", "later")
			for _, accept := range forms {
				r.sameIn(t, accept, tt.kind, ns, revision)
			}
			if !bytes.Contains(r.ask(tt.kind.Path(ns), exactly(revision)).Body, []byte("later")) {
				t.Error("the change is not there")
			}
		})
	}
}

// TestChangesBelowTheLoad: objects that were created and deleted before a state was loaded come
// again in the watch that begins with the newest change that the state knows. They contradict
// nothing.
func TestChangesBelowTheLoad(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := ownCluster(t)
	ns := c.namespace(t, "below")
	tests := []struct {
		name string
		kind kind
		// older are there before the newest object of the state that is loaded, and gone come and
		// go after it.
		older []string
		after func(t *testing.T, k kind)
	}{
		{name: "one was created and deleted", kind: limitRanges, after: func(t *testing.T, k kind) {
			c.create(t, k, ns, "gone")
			c.remove(t, k, ns, "gone")
		}},
		{name: "one was created, changed and deleted", kind: podTemplates, after: func(t *testing.T, k kind) {
			c.create(t, k, ns, "gone")
			c.touch(t, k, ns, "gone", "once")
			c.touch(t, k, ns, "gone", "twice")
			c.remove(t, k, ns, "gone")
		}},
		{name: "an older one was deleted", kind: resourceQuotas, older: []string{"gone", "stays"}, after: func(t *testing.T, k kind) {
			c.remove(t, k, ns, "gone")
		}},
		{name: "an older one was changed and deleted", kind: budgets, older: []string{"gone", "stays"}, after: func(t *testing.T, k kind) {
			c.touch(t, k, ns, "gone", "once")
			c.remove(t, k, ns, "gone")
		}},
		{name: "one was deleted, created and deleted again", kind: networkPolicies, older: []string{"gone"}, after: func(t *testing.T, k kind) {
			c.remove(t, k, ns, "gone")
			c.create(t, k, ns, "gone")
			c.remove(t, k, ns, "gone")
		}},
		{name: "many came and went", kind: revisions, older: []string{"stays"}, after: func(t *testing.T, k kind) {
			for i := range 10 {
				c.create(t, k, ns, fmt.Sprint("gone-", i))
			}
			for i := range 10 {
				c.remove(t, k, ns, fmt.Sprint("gone-", i))
			}
		}},
		{name: "a custom one was created and deleted", kind: widgets, after: func(t *testing.T, k kind) {
			c.create(t, k, ns, "gone")
			c.remove(t, k, ns, "gone")
		}},
	}
	r := newRig(t, c, rigOptions{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &feeds{rig: r, kind: tt.kind, namespace: ns}
			for _, name := range tt.older {
				r.create(t, tt.kind, ns, name)
			}
			r.create(t, tt.kind, ns, "newest")
			tt.after(t, tt.kind)
			f.begin(t, false)
			loads := r.count(tt.kind, fullLoad)
			r.hop.CutAll()
			f.goesOn(t) // what happened until it was loaded again is forgotten

			// What comes after the state counts, also where its names have been seen below it.
			known := []string{r.create(t, tt.kind, ns, "gone"), r.touch(t, tt.kind, ns, "newest", "later")}
			r.remove(t, tt.kind, ns, "gone")
			known = append(known, r.touch(t, tt.kind, ns, "newest", "last"), f.goesOn(t))
			again := r.count(tt.kind, fullLoad) - loads
			t.Logf("full lists: %d at the beginning, %d since then, for %d feeds; restarts: %v", loads, again, len(f.accepts()), r.restarts(t, tt.kind))
			if again > len(f.accepts()) { // once each: nothing since the load could be told again
				t.Errorf("loaded %d times again", again)
			}
			f.stillKnown(t, known)
		})
	}
}

// Rule 12: a replica is not ready before its eager collections are there.
func TestWarmBeforeReady(t *testing.T) {
	t.Parallel()
	var heldBack atomic.Bool
	heldBack.Store(true)
	r := newRig(t, shared, rigOptions{
		args: []string{"--eager", "pods,deployments.v1.apps"},
		cold: true,
		fault: func(w http.ResponseWriter, req *http.Request) bool {
			return of(req, pods) && heldBack.Load() && hop.Refuse(w, http.StatusServiceUnavailable)
		},
	})
	ns := r.namespace(t, "warm")
	r.create(t, pods, ns, "first")
	r.until("one of the two", func() error {
		ready, text := r.proxy.Ready(t.Context())
		if ready {
			return poll.Wrong("ready without the pods")
		}
		if !strings.Contains(text, "[-]collection/pods.v1 not ready: the upstream answered 503") ||
			!strings.Contains(text, "[+]collection/deployments.v1.apps ok") {
			return fmt.Errorf("/readyz says: %s", text)
		}
		return nil
	})
	r.expect(fwdWarming, pods.Path(""), anyVersion())
	if n := r.count(pods, func(url.Values) bool { return true }); n == 0 {
		t.Error("the feed has not even asked")
	}

	heldBack.Store(false)
	expect.NoError(t, r.proxy.AwaitReady(t.Context()))
	r.expect(hitAny, pods.Path(""), anyVersion())
	r.expect(hitAny, deployments.Path(""), anyVersion())
}

// An eager resource is named with its version, and with what kube-apiserver answers: here one version
// of a custom resource needs a conversion webhook, which nobody serves.
func TestReadySaysWhatTheAPIServerAnswers(t *testing.T) {
	t.Parallel()
	one := namespaced("eager.feed.test/v1", "Converted", "converteds", "")
	other := one
	other.APIVersion = "eager.feed.test/v2"
	second := kinds.Version(kinds.Open(nil))
	second["name"], second["storage"] = "v2", false
	definition := one.Definition(kinds.Version(kinds.Open(nil)), second)
	definition["spec"].(fieldsOf)["conversion"] = fieldsOf{
		"strategy": "Webhook",
		"webhook": fieldsOf{
			"conversionReviewVersions": []string{"v1"},
			"clientConfig":             fieldsOf{"url": "https://127.0.0.1:1/nobody"},
		},
	}
	shared.write(t, http.MethodPost, kinds.Definitions, definition)
	expect.NoError(t, shared.served(t.Context(), one))
	ns := shared.namespace(t, "converted")
	shared.create(t, one, ns, "first")
	r := newRig(t, shared, rigOptions{args: []string{"--eager", one.Eager() + "," + other.Eager()}, cold: true})
	r.until("both versions in /readyz", func() error {
		ready, text := r.proxy.Ready(t.Context())
		if ready {
			return poll.Wrong("ready without one version")
		}
		if !strings.Contains(text, "[+]collection/"+one.Eager()+" ok") ||
			!strings.Contains(text, "[-]collection/"+other.Eager()+" not ready: the upstream answered 500") || !strings.Contains(text, "conversion webhook") {
			return fmt.Errorf("/readyz says: %s", text)
		}
		return nil
	})
	r.until("the log to say it", func() error {
		if log := r.proxy.Log(); !strings.Contains(log, `msg="an eager collection is not warm" resource=`+other.Eager()+` reason="the upstream answered 500`) {
			return errors.New("it does not")
		}
		return nil
	})
}

// Rule 2: loads that only trickle, as where a conversion webhook is slow, hold up no others: with
// four of them under way, one more resource is loaded.
func TestLoadsThatTrickle(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	slow, quick := []kind{daemonSets, replicaSets, statefulSets, revisions}, networkPolicies
	ns := shared.namespace(t, "trickling")
	names := []string{quick.Eager()}
	for _, k := range slow {
		names = append(names, k.Eager())
		for i := range 40 {
			shared.create(t, k, ns, fmt.Sprintf("object-%d", i))
		}
	}
	trickles := func(req *http.Request) bool {
		return fullLoad(req.URL.Query()) && slices.ContainsFunc(slow, func(k kind) bool { return of(req, k) })
	}
	var mu sync.Mutex
	begun, all := map[string]bool{}, make(chan struct{})
	r := newRig(t, shared, rigOptions{cold: true, args: []string{"--eager", strings.Join(names, ",")}, fault: func(_ http.ResponseWriter, req *http.Request) bool {
		if of(req, quick) { // comes last
			select {
			case <-all:
			case <-req.Context().Done():
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if trickles(req) && !begun[req.URL.Path] {
			if begun[req.URL.Path] = true; len(begun) == len(slow) {
				close(all)
			}
		}
		return false
	}})
	r.changeLines(func(req *http.Request, line []byte) ([]byte, error) {
		if trickles(req) {
			select {
			case <-time.After(5 * time.Second):
			case <-req.Context().Done():
			}
		}
		return line, nil
	})
	r.until("the loads that trickle", func() error {
		select {
		case <-all:
			return nil
		default:
			return errors.New("not all have begun")
		}
	})
	since := time.Now()
	r.until("the other one", func() error {
		_, text := r.proxy.Ready(t.Context())
		for _, k := range slow {
			if strings.Contains(text, "[+]collection/"+k.Eager()+" ok") {
				return poll.Wrong("this one does not trickle: " + text)
			}
		}
		if !strings.Contains(text, "[+]collection/"+quick.Eager()+" ok") {
			return fmt.Errorf("/readyz says: %s", text)
		}
		return nil
	})
	t.Logf("loaded %v after the others began", time.Since(since).Round(time.Second))
}

// Rule 2: a crowd that comes at once to a resource that nobody has asked for costs the API server a
// few lists and the load.
func TestCrowdAtAColdResource(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const crowd, objects = 200, 1000
	var lists atomic.Int32
	c := ownCluster(t)
	r := newRig(t, c, rigOptions{})
	r.hop.OnRequest(func(w http.ResponseWriter, req *http.Request) bool {
		if !hop.Own(req) && req.URL.Path == configMaps.Path("") {
			lists.Add(1)
		}
		return r.onRequest(w, req)
	})
	ns := r.namespace(t, "crowd")
	var writing sync.WaitGroup
	for i := range 10 {
		writing.Go(func() {
			for j := range objects / 10 {
				_, err := c.direct.Do(t.Context(), http.MethodPost, configMaps.Path(ns), configMaps.Object(fmt.Sprintf("slice-%d-%d", i, j)))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	r.ask(pods.Path(""), anyVersion()) // the caller is known, and so is what is served
	begun, slowest := time.Now(), atomic.Int64{}
	sources := map[string]int{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for range crowd {
		asking.Go(func() {
			a, err := r.admin.Get(t.Context(), configMaps.Path("")+"?resourceVersion=0")
			if err != nil || a.Code != http.StatusOK {
				t.Errorf("%v: %s", err, a)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			sources[a.Source()]++
			slowest.Store(max(slowest.Load(), int64(time.Since(begun))))
		})
	}
	asking.Wait()
	t.Logf("%d lists of %d objects at once: %d reached the API server, beside %d loads; the last answer came after %v; %v",
		crowd, objects, lists.Load(), r.count(configMaps, fullLoad), time.Duration(slowest.Load()).Round(time.Millisecond), sources)
	if n := lists.Load(); n > 4 {
		t.Errorf("%d lists reached the API server", n)
	}
	expect.NoError(t, r.loaded(configMaps, 1))
	r.expect(hitAny, configMaps.Path(""), anyVersion())
}
