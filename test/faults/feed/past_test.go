package feed

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
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

// Rule 7, where nothing has changed since the state was loaded: an etcd that was restored while
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
