package feed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/informers"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// lookingAfter is how long answers are compared after the feed may reach the upstream again: as
// long as a resumed watch may take to begin, and more.
const lookingAfter = 15 * time.Second

// quietPast is a resource in which nothing happens while listproxy follows it: the feed has no
// event by which it could recognise the upstream's past.
type quietPast struct {
	name string
	kind kind
	// older are the objects in the snapshot.
	older []string
	// undone writes, after the snapshot and before listproxy loads, what the restore will undo.
	undone func(c *cluster, t *testing.T, k kind)
	// other is an object that only the new past has.
	other string

	revisions []string // at which listproxy was asked before the restore
	live      bool     // listproxy has a newest state again
	wrong     bool
}

// quietPasts are the ways in which a resource can differ between two pasts.
func quietPasts() []*quietPast {
	create := func(c *cluster, t *testing.T, k kind) { c.create(t, k, restored, "undone") }
	remove := func(c *cluster, t *testing.T, k kind) { c.remove(t, k, restored, "removed") }
	change := func(c *cluster, t *testing.T, k kind) { c.touch(t, k, restored, "kept", "undone") }
	kept, removed := []string{"kept"}, []string{"removed"}
	return []*quietPast{
		// The oldest of what is undone: the restored API server has forgotten its revision (410).
		{name: "a custom resource beside one that is kept is undone", kind: gadgets, older: kept, undone: create},
		{name: "another is the only object", kind: limitRanges, undone: create, other: "other"},
		{name: "another custom resource is the only object", kind: widgets, undone: create, other: "other"},
		{name: "another object beside one that is kept", kind: configMaps, older: kept, undone: create, other: "other"},
		{name: "the only object is undone", kind: resourceQuotas, undone: create},
		{name: "an object beside one that is kept is undone", kind: networkPolicies, older: kept, undone: create},
		{name: "the only deletion is undone", kind: podTemplates, older: removed, undone: remove},
		{name: "the only deletion is undone, and there is another", kind: budgets, older: removed, undone: remove, other: "other"},
		{name: "a deletion beside one that is kept is undone", kind: revisions, older: []string{"kept", "removed"}, undone: remove},
		{name: "a change is undone", kind: claims, older: kept, undone: change},
		{name: "a change is undone, and there is another", kind: deployments, older: kept, undone: change, other: "other"},
	}
}

// Rule 5, where nothing has changed since the state was loaded: an etcd that was restored while
// the feed was away, and written to until its revision had passed the old one, looks as if the
// watch could just go on.
func TestRestoreThatHasPassedQuietly(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := ownCluster(t)
	c.namespace(t, restored)
	pasts := quietPasts()
	for _, p := range pasts {
		for _, name := range p.older {
			c.create(t, p.kind, restored, name)
		}
	}
	snapshot, err := c.SnapshotEtcd(t.Context())
	expect.NoError(t, err)
	for _, p := range pasts {
		p.undone(c, t, p.kind)
	}
	r := newRig(t, c, rigOptions{bound: shortestBound})
	for _, p := range pasts {
		r.await(hitAny, p.kind.Path(restored), anyVersion())
	}
	for _, p := range pasts { // all are loaded: what they know reaches no further than this
		revision := r.await(hitAny, p.kind.Path(restored), anyVersion()).Meta().ResourceVersion
		r.expect(hitExact, p.kind.Path(restored), exactly(revision))
		p.revisions = append(p.revisions, revision)
	}

	back := r.cutOff()
	old, err := c.EtcdRevision(t.Context())
	expect.NoError(t, err)
	expect.NoError(t, c.RestoreEtcd(t.Context(), snapshot))
	for _, p := range pasts {
		if p.other != "" {
			c.create(t, p.kind, restored, p.other)
		}
	}
	last := c.writePast(t, old)
	for _, p := range pasts {
		r.showsAway(p.kind.Path(restored))
	}

	back()
	begun := time.Now()
	r.until("all answers to have been compared", func() error {
		waiting := ""
		for _, p := range pasts {
			if p.wrong {
				continue
			}
			if err := r.compare(p, last); err != nil {
				p.wrong = errors.As(err, new(poll.Wrong))
				if p.wrong {
					t.Errorf("%s (%s), %v after the feed could come back: %v", p.name, p.kind.Plural, time.Since(begun), err)
				}
			}
			if !p.live && !p.wrong {
				waiting += ", " + p.name
			}
		}
		if spent := time.Since(begun); spent < lookingAfter {
			return fmt.Errorf("%v have passed", spent)
		}
		if waiting != "" {
			return fmt.Errorf("nothing from memory again%s", waiting)
		}
		return nil
	})
	for _, p := range pasts {
		r.create(t, p.kind, restored, "later")
		r.exactAgain(p.kind, restored, "later")
	}
}

// compare asks for a resource in all ways. Before the feed has heard of the restored state
// listproxy can only believe what it knows of the past; after that it must not.
func (r *rig) compare(p *quietPast, last string) error {
	list := p.kind.Path(restored)
	for source, q := range map[string]url.Values{hitAny: anyVersion(), hitNotOlderThan: notOlderThan(last)} {
		a, err := r.try(list, q)
		if err != nil {
			return err
		}
		p.live = p.live || a.Source() == source
	}
	if !p.live {
		return nil
	}
	for _, revision := range append(p.revisions, last) {
		if _, err := r.try(list, exactly(revision)); err != nil {
			return err
		}
		if _, err := r.try(list, firstPage(revision)); err != nil {
			return err
		}
	}
	return nil
}

// writePast writes, elsewhere, until the revision has passed another, and returns it.
func (c *cluster) writePast(t *testing.T, old int64) string {
	t.Helper()
	c.create(t, endpointSlices, restored, "busy")
	for i := 0; ; i++ {
		last := c.touch(t, endpointSlices, restored, "busy", strconv.Itoa(i))
		if now, err := strconv.ParseInt(last, 10, 64); err != nil || now > old {
			expect.NoError(t, err)
			return last
		}
	}
}

// Rule 7, where both pasts have the same objects, of the same revisions, in the end: what was
// created and deleted in one of them only was never there in the other. The API server cannot tell
// it (410), since it was started again after etcd was restored and written to, nor does it say that
// it is another one: no state in between may be believed.
func TestRestoreToTheSameObjects(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := ownCluster(t, "--feature-gates=APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false")
	c.namespace(t, restored)
	undone, added := limitRanges, podTemplates
	kinds := []kind{undone, added}
	for _, k := range kinds {
		c.create(t, k, restored, "kept")
	}
	c.create(t, configMaps, restored, "busy")
	snapshot, err := c.SnapshotEtcd(t.Context())
	expect.NoError(t, err)
	r := newRig(t, c, rigOptions{})
	for _, k := range kinds {
		r.await(hitAny, k.Path(restored), anyVersion())
	}
	// Of one kind an object comes and goes, while the feed follows.
	there := r.create(t, undone, restored, "undone")
	r.await(hitNotOlderThan, undone.Path(restored), notOlderThan(there))
	r.remove(t, undone, restored, "undone")
	first, last := r.busyFor(t, 300)
	for _, k := range kinds {
		r.await(hitNotOlderThan, k.Path(restored), notOlderThan(last))
		expect.NoError(t, r.known(k.Path(restored), first, last))
	}
	r.expect(hitExact, undone.Path(restored), exactly(there))
	inTheEnd := map[string]string{}
	for _, k := range kinds {
		inTheEnd[k.Plural] = string(r.ask(k.Path(restored), exactly(last)).Body)
	}

	back := r.cutOff()
	old, err := c.EtcdRevision(t.Context())
	expect.NoError(t, err)
	expect.NoError(t, c.RestoreEtcd(t.Context(), snapshot))
	// Of the other kind one comes and goes now, at revisions of which the feed knows that there was
	// none.
	now, _ := r.busyFor(t, 1)
	for below(t, now, first) {
		now, _ = r.busyFor(t, 1)
	}
	between := c.create(t, added, restored, "added")
	c.remove(t, added, restored, "added")
	if !below(t, between, last) {
		t.Fatalf("the API server writes too much: %s is not below %s", between, last)
	}
	for below(t, now, strconv.FormatInt(old+1, 10)) {
		now, _ = r.busyFor(t, 1)
	}
	c.forgetChanges(t, restored, kinds)
	for _, k := range kinds {
		a, err := c.direct.Get(t.Context(), k.Path(restored)+"?"+exactly(last).Encode())
		if err != nil || string(a.Body) != inTheEnd[k.Plural] {
			t.Fatalf("the pasts do not have the same %s in the end: %v, %s", k.Plural, err, a)
		}
	}

	// What the answers are before the feed has heard of it proves nothing.
	back()
	begun := time.Now()
	live, wrong := map[string]bool{}, map[string]bool{}
	r.until("all answers to have been compared", func() error {
		for _, k := range kinds {
			if wrong[k.Plural] {
				continue
			}
			err := r.compareOnceLive(k, live, now, there, first, between, last)
			if wrong[k.Plural] = errors.As(err, new(poll.Wrong)); wrong[k.Plural] {
				live[k.Plural] = true
				t.Errorf("%v after the feed could come back: %v", time.Since(begun).Round(time.Millisecond), err)
			} else if err != nil {
				return err
			}
		}
		if spent := time.Since(begun); spent < lookingAfter || len(live) < len(kinds) {
			return fmt.Errorf("%v have passed, from memory again: %v", spent, live)
		}
		return nil
	})
	t.Logf("full lists: %d and %d, for one feed each; lost: %v and %v",
		r.count(undone, fullLoad), r.count(added, fullLoad), r.restarts(t, undone), r.restarts(t, added))
}

// compareOnceLive asks for states of a kind, once what is newer than them all comes from memory.
func (r *rig) compareOnceLive(k kind, live map[string]bool, newest string, revisions ...string) error {
	r.t.Helper()
	if !live[k.Plural] {
		a, err := r.try(k.Path(restored), notOlderThan(newest))
		if err != nil || a.Source() != hitNotOlderThan {
			return err
		}
		live[k.Plural] = true
	}
	for _, revision := range revisions {
		if _, err := r.try(k.Path(restored), exactly(revision)); err != nil {
			return err
		}
	}
	return nil
}

// busyFor changes an object so many times, and returns the first and the last revision.
func (r *rig) busyFor(t *testing.T, times int) (first, last string) {
	t.Helper()
	for i := range times {
		last = r.touch(t, configMaps, restored, "busy", fmt.Sprint(time.Now().UnixNano()))
		if i == 0 {
			first = last
		}
	}
	return first, last
}

// below compares revisions.
func below(t *testing.T, revision, other string) bool {
	t.Helper()
	a, err1 := strconv.ParseUint(revision, 10, 64)
	b, err2 := strconv.ParseUint(other, 10, 64)
	expect.NoError(t, errors.Join(err1, err2))
	return a < b
}

// informed is an informer of client-go, and what it has asked for.
type informed struct {
	// lists and gone count its lists, and the answers that its revision is too old.
	lists, gone atomic.Int32
	stored      func(key string) (*unstructured.Unstructured, bool)
}

// inform starts an informer of config maps in a namespace, against one side.
func inform(t *testing.T, cfg *rest.Config, namespace string) *informed {
	t.Helper()
	i := &informed{}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) { return i.count(next, r) })
	})
	clients, err := informers.NewClients(cfg)
	expect.NoError(t, err)
	lister := clients.Listers(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, namespace)["dynamic"]
	informer := lister.Informer(true, "", "")
	expect.NoError(t, informers.Start(t.Context(), informer))
	i.stored = func(key string) (*unstructured.Unstructured, bool) {
		o, found := informers.Stored(informer)[namespace+"/"+key].(*unstructured.Unstructured)
		return o, found
	}
	return i
}

type roundTrip func(r *http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// count passes a request on, and counts it.
func (i *informed) count(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	watches := r.URL.Query().Has("watch")
	if !watches {
		i.lists.Add(1)
	}
	answer, err := next.RoundTrip(r)
	switch {
	case err != nil:
	case answer.StatusCode == http.StatusGone:
		i.gone.Add(1)
	case watches:
		answer.Body = &goneCounter{answer.Body, &i.gone}
	}
	return answer, err
}

// goneCounter counts the events of a watch that say 410.
type goneCounter struct {
	io.ReadCloser
	gone *atomic.Int32
}

// Read implements io.Reader.
func (c *goneCounter) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if bytes.Contains(p[:n], []byte(`"code":410`)) {
		c.gone.Add(1)
	}
	return n, err
}

// informersEach is how many informers each side has: when one of them asks again is chance.
const informersEach = 4

// Rule 6: when an API server makes the watch cache of one resource anew, here because an object
// was damaged in etcd for a while, informers behind listproxy ask no more often than those that ask
// directly: what they get after a 410 is newer than what was refused.
func TestWatchCacheMadeAnew(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := ownCluster(t)
	r := newRig(t, c, rigOptions{args: []string{"--eager", "configmaps"}})
	ns := r.namespace(t, "made-anew")
	r.create(t, configMaps, ns, "one")
	r.await(hitAny, configMaps.Path(ns), anyVersion())
	const direct, through = "directly", "through listproxy"
	sides := map[string][]*informed{}
	for range informersEach {
		sides[direct] = append(sides[direct], inform(t, c.RESTConfig(controlplane.Admin), ns))
		sides[through] = append(sides[through], inform(t, r.proxy.RESTConfig(c.RESTConfig(controlplane.Admin)), ns))
	}
	// all is how long after since the last informer of each side had come to show a value.
	all := func(value string, since time.Time) map[string]time.Duration {
		came := map[string]time.Duration{}
		r.until("informers that show "+value, func() error {
			for side, informers := range sides {
				if _, is := came[side]; !is && !slices.ContainsFunc(informers, func(i *informed) bool { return !i.shows(value) }) {
					came[side] = time.Since(since)
				}
			}
			if len(came) < len(sides) {
				return fmt.Errorf("so far %v", came)
			}
			return nil
		})
		return came
	}
	r.touch(t, configMaps, ns, "one", "before")
	all("before", time.Now())
	for _, informers := range sides {
		for _, i := range informers {
			i.lists.Store(0)
			i.gone.Store(0)
		}
	}

	const damaged = "configmaps/made-anew/damaged"
	expect.NoError(t, c.DamageEtcd(t.Context(), damaged))
	r.until("the feed to be without a stream", func() error {
		if !strings.Contains(r.proxy.Log(), "watch not resumed yet") {
			return errors.New("it has one")
		}
		return nil
	})
	// However long the feed takes to come back, informers do not wait for it.
	r.onFault(func(w http.ResponseWriter, req *http.Request) bool {
		return of(req, configMaps) && hop.Refuse(w, http.StatusServiceUnavailable)
	})
	r.touch(t, configMaps, ns, "one", "after")
	expect.NoError(t, c.MendEtcd(t.Context(), damaged))
	came := all("after", time.Now())
	r.onFault(nil)
	lists, gone := map[string]int32{}, map[string]int32{}
	for side, informers := range sides {
		for _, i := range informers {
			lists[side] += i.lists.Load()
			gone[side] += i.gone.Load()
		}
	}
	t.Logf("%d informers each: true after %v, lists %v, answers 410 %v", informersEach, came, lists, gone)
	if gone[direct] == 0 {
		t.Error("the API server has refused no watch")
	}
	if lists[through] > max(lists[direct], informersEach) || gone[through] > max(gone[direct], informersEach) {
		t.Error("informers behind listproxy asked more often")
	}
	r.await(hitNotOlderThan, configMaps.Path(ns), notOlderThan(r.touch(t, configMaps, ns, "one", "last")))
}

// shows reports whether the informer has the object "one" with a value.
func (i *informed) shows(value string) bool {
	o, found := i.stored("one")
	return found && o.GetAnnotations()["touched"] == value
}
