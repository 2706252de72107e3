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

// A list for which memory has no proven answer yet either waits or is forwarded to the upstream. A list is forwarded if it is
// small: if its Work (see index.Tree.Work) is at most largeListBytes, 256 KiB.

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

// TestBeginForwardUnproven: BeginForwardUnproven lets a small list of the newest state be forwarded. But if a probe that was
// sent after the list came has proven the state already, the list is answered from memory.
func TestBeginForwardUnproven(t *testing.T) {
	c := collectionOfMany()
	ofNoObject := labels.SelectorFromSet(labels.Set{"app": "x"})
	// The state is proven by the last probe. A list came after that probe, or before it. It knows the number of the last probe
	// that was sent before the list came.
	lastProbe := c.shared.probes.Last()
	unproven, proven := lastProbe, lastProbe-1
	for name, tt := range map[string]struct {
		query       index.Query
		afterProbe  uint64 // unproven or proven
		wantForward bool
	}{
		"all objects":                     {query: index.Query{}, afterProbe: unproven},
		"a page of 100":                   {query: index.Query{Limit: 100}, afterProbe: unproven, wantForward: true},
		"a page of 500":                   {query: index.Query{Limit: 500}, afterProbe: unproven},
		"an empty namespace":              {query: index.Query{Scope: index.Scope{Namespace: "m"}}, afterProbe: unproven, wantForward: true},
		"one object":                      {query: index.Query{Name: "0001"}, afterProbe: unproven, wantForward: true},
		"the last 100 objects":            {query: index.Query{Start: "n/0900"}, afterProbe: unproven, wantForward: true},
		"a label that no object has":      {query: index.Query{Labels: ofNoObject}, afterProbe: unproven, wantForward: true},
		"a page of 100 of a proven state": {query: index.Query{Limit: 100}, afterProbe: proven},
	} {
		expectForward(t, name, c.BeginForwardUnproven(tt.query, tt.afterProbe), tt.wantForward)
	}
}

// expectForward checks whether a list may be forwarded. done is what BeginForwardUnproven or BeginForwardPage has returned: nil
// if the list may not be forwarded, or else a function to call after the list was forwarded. expectForward calls it.
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

// TestSmallForwardsAreBounded: BeginForwardUnproven lets at most maxSmallForwards lists of a collection be forwarded at the
// same time, and none if there is no state.
func TestSmallForwardsAreBounded(t *testing.T) {
	c := collectionOfMany()
	beginOne := func() (done func()) { return c.BeginForwardUnproven(index.Query{Limit: 1}, c.shared.probes.Last()) }
	forwarded := 0
	var endLast func() // ends the last list that was forwarded
	for range 10 * maxSmallForwards {
		if done := beginOne(); done != nil {
			forwarded++
			endLast = done
		}
	}
	if forwarded != maxSmallForwards {
		t.Errorf("got %d lists forwarded at the same time, want %d", forwarded, maxSmallForwards)
	}
	endLast()
	expectForward(t, "after one list is done, another one", beginOne(), true)
	c.drop(reason.Upstream)
	expectForward(t, "a list without a state", beginOne(), false)
}

// TestBeginForwardPage: if memory has not reached the revision of a list's later page, BeginForwardPage lets a small page be
// forwarded, and requests a probe, so that memory reaches the revision before the next page is asked for.
func TestBeginForwardPage(t *testing.T) {
	const reached, notReached = manyAt, manyAt + 1
	small, large := index.Query{Limit: 1, Start: "n/0001"}, index.Query{Start: "n/0001"}
	for name, tt := range map[string]struct {
		query       index.Query
		revision    uint64
		wantForward bool // the page may be forwarded, and a probe is requested
	}{
		"a small page at a revision that is not reached": {query: small, revision: notReached, wantForward: true},
		"a small page at a revision that is reached":     {query: small, revision: reached},
		"a large page at a revision that is not reached": {query: large, revision: notReached},
	} {
		c := collectionOfMany()
		expectForward(t, name, c.BeginForwardPage(tt.query, tt.revision), tt.wantForward)
		if probes := len(c.probeRequests); (probes > 0) != tt.wantForward {
			t.Errorf("%s: got %d requested probes, want some: %t", name, probes, tt.wantForward)
		}
	}
}
