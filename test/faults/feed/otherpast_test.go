package feed

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// Rule 7, where both pasts have the same objects, of the same revisions, in the end: what was created and deleted
// in one of them only was never there in the other. The API server cannot tell it (410), since it was started again
// after etcd was restored and written to, nor does it say that it is another one: no state in between may be believed.
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
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, c, rigOptions{})
	for _, k := range kinds {
		r.await(hitAny, k.list(restored), anyVersion())
	}
	// Of one kind an object comes and goes, while the feed follows.
	there := r.create(t, undone, restored, "undone")
	r.await(hitNotOlderThan, undone.list(restored), notOlderThan(there))
	r.remove(t, undone, restored, "undone")
	first, last := r.busyFor(t, 300)
	for _, k := range kinds {
		r.await(hitNotOlderThan, k.list(restored), notOlderThan(last))
		if err := r.known(k.list(restored), first, last); err != nil {
			t.Fatal(err)
		}
	}
	r.expect(hitExact, undone.list(restored), exactly(there))
	inTheEnd := map[string]string{}
	for _, k := range kinds {
		inTheEnd[k.plural] = string(r.ask(k.list(restored), exactly(last)).Body)
	}

	back := r.cutOff()
	old, err := c.EtcdRevision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.RestoreEtcd(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	// Of the other kind one comes and goes now, at revisions of which the feed knows that there was none.
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
		a, err := c.direct.Get(t.Context(), k.list(restored)+"?"+exactly(last).Encode())
		if err != nil || string(a.Body) != inTheEnd[k.plural] {
			t.Fatalf("the pasts do not have the same %s in the end: %v, %s", k.plural, err, a)
		}
	}

	// What the answers are before the feed has heard of it proves nothing.
	back()
	begun := time.Now()
	live, wrong := map[string]bool{}, map[string]bool{}
	r.until("all answers to have been compared", func() error {
		for _, k := range kinds {
			if wrong[k.plural] {
				continue
			}
			err := r.compareOnceLive(k, live, now, there, first, between, last)
			if wrong[k.plural] = errors.As(err, new(poll.Wrong)); wrong[k.plural] {
				live[k.plural] = true
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
	if !live[k.plural] {
		a, err := r.try(k.list(restored), notOlderThan(newest))
		if err != nil || a.Source() != hitNotOlderThan {
			return err
		}
		live[k.plural] = true
	}
	for _, revision := range revisions {
		if _, err := r.try(k.list(restored), exactly(revision)); err != nil {
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
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return a < b
}
