package feed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// restored is the namespace of the test that puts etcd back to an older state.
const restored = "restored"

// lookingAfter is how long answers are compared after the feed may reach the upstream again: as
// long as a resumed watch may take to begin, and more.
const lookingAfter = 15 * time.Second

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
