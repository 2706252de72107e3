package feed

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

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
