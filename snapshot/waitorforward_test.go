package snapshot

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
)

// manyAt is the revision of collectionOfMany.
const manyAt = 10

// collectionOfMany returns a collection of 1000 objects of 1000 bytes each, n/0000 to n/0999.
func collectionOfMany() *Collection {
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Hour})
	state := index.NewTree(withoutIndex)
	for i := range 1000 {
		state.Set(index.NewObject(uint64(i), fmt.Sprintf("n/%04d", i), 1, bytes.Repeat([]byte("x"), 1000)))
	}
	loadState(c, state, manyAt)
	return c
}

// TestBeginForwardUnproven: BeginForwardUnproven lets a list be forwarded if the work for it is at most maxSmallWork, unless the
// state is proven already, by a probe that was sent after the list came.
func TestBeginForwardUnproven(t *testing.T) {
	c := collectionOfMany()
	ofNoObject := labels.SelectorFromSet(labels.Set{"app": "x"})
	for name, tt := range map[string]struct {
		query       index.Query
		isProven    bool // by the last probe, which was sent after the list came
		wantForward bool
	}{
		"all objects":                     {query: index.Query{}},
		"a page of 100":                   {query: index.Query{Limit: 100}, wantForward: true},
		"a page of 500":                   {query: index.Query{Limit: 500}},
		"an empty namespace":              {query: index.Query{Scope: index.Scope{Namespace: "m"}}, wantForward: true},
		"one object":                      {query: index.Query{Name: "0001"}, wantForward: true},
		"the last 100 objects":            {query: index.Query{Start: "n/0900"}, wantForward: true},
		"a label that no object has":      {query: index.Query{Labels: ofNoObject}, wantForward: true},
		"a page of 100 of a proven state": {query: index.Query{Limit: 100}, isProven: true},
	} {
		afterProbe := c.shared.probes.Last() // no probe was sent after the list came
		if tt.isProven {
			afterProbe-- // the last probe was
		}
		expectForward(t, name, c.BeginForwardUnproven(tt.query, afterProbe), tt.wantForward)
	}
}

// expectForward checks whether a list may be forwarded. done is what BeginForwardUnproven or BeginForwardPage has returned;
// expectForward calls it.
func expectForward(t *testing.T, name string, done func(), want bool) {
	t.Helper()
	isForwarded := done != nil
	if isForwarded != want {
		t.Errorf("%s: may be forwarded: got %t, want %t", name, isForwarded, want)
	}
	if isForwarded {
		done()
	}
}

// TestSmallForwardsAreBounded: BeginForwardUnproven lets at most maxSmallForwards lists of a collection be forwarded at the same
// time, and none if there is no state.
func TestSmallForwardsAreBounded(t *testing.T) {
	c := collectionOfMany()
	begin := func() (done func()) { return c.BeginForwardUnproven(index.Query{Limit: 1}, c.shared.probes.Last()) }
	forwarded, endLast := 0, func() {}
	for range 10 * maxSmallForwards {
		if done := begin(); done != nil {
			forwarded++
			endLast = done
		}
	}
	if forwarded != maxSmallForwards {
		t.Errorf("got %d lists forwarded at the same time, want %d", forwarded, maxSmallForwards)
	}
	endLast()
	expectForward(t, "after one list is done, another one", begin(), true)
	c.drop(reason.Upstream)
	expectForward(t, "a list without a state", begin(), false)
}

// TestBeginForwardPage: if memory has not reached a list's revision, BeginForwardPage lets a small page of the list be forwarded,
// and requests a probe, so that memory reaches the revision.
func TestBeginForwardPage(t *testing.T) {
	const reached, notReached = manyAt, manyAt + 1
	small, large := index.Query{Limit: 1, Start: "n/0001"}, index.Query{Start: "n/0001"}
	for name, tt := range map[string]struct {
		query       index.Query
		revision    uint64
		wantForward bool // and a probe
	}{
		"a small page, not reached": {query: small, revision: notReached, wantForward: true},
		"a small page, reached":     {query: small, revision: reached},
		"a large page, not reached": {query: large, revision: notReached},
	} {
		c := collectionOfMany()
		expectForward(t, name, c.BeginForwardPage(tt.query, tt.revision), tt.wantForward)
		if probes := len(c.probeRequests); (probes > 0) != tt.wantForward {
			t.Errorf("%s: got %d requested probes, want some: %t", name, probes, tt.wantForward)
		}
	}
}
