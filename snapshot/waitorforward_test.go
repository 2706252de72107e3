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

// TestBeginForwardUnproven: a list of the newest state is forwarded if the work for it is at most maxSmallWork.
// It forwards no list whose state is proven already, by a probe that was sent after the list came.
func TestBeginForwardUnproven(t *testing.T) {
	c := collectionOfMany()
	waiting, proven := afterProbes(c) // the state is not proven, or proven
	for name, tt := range map[string]struct {
		query       index.Query
		afterProbe  uint64
		wantForward bool
	}{
		"all objects":          {query: index.Query{}, afterProbe: waiting},
		"a page of 100":        {query: index.Query{Limit: 100}, afterProbe: waiting, wantForward: true},
		"a page of 500":        {query: index.Query{Limit: 500}, afterProbe: waiting},
		"an empty namespace":   {query: index.Query{Scope: index.Scope{Namespace: "m"}}, afterProbe: waiting, wantForward: true},
		"one object":           {query: index.Query{Name: "0001"}, afterProbe: waiting, wantForward: true},
		"the last 100 objects": {query: index.Query{Start: "n/0900"}, afterProbe: waiting, wantForward: true},
		"a label that no object has": {
			query: index.Query{Labels: labels.SelectorFromSet(labels.Set{"app": "x"})}, afterProbe: waiting, wantForward: true,
		},
		"a page of 100 of a proven state": {query: index.Query{Limit: 100}, afterProbe: proven},
	} {
		done := c.BeginForwardUnproven(tt.query, tt.afterProbe)
		if forward := done != nil; forward != tt.wantForward {
			t.Errorf("%s: may be forwarded: got %t, want %t", name, forward, tt.wantForward)
		}
		if done != nil {
			done()
		}
	}
}

// TestSmallForwardsAreBounded: BeginForwardUnproven lets at most maxSmallForwards lists of a collection be forwarded at the same
// time, and none if there is no state.
func TestSmallForwardsAreBounded(t *testing.T) {
	c := collectionOfMany()
	try := func() (done func()) { return c.BeginForwardUnproven(index.Query{Limit: 1}, c.shared.probes.Last()) }
	var dones []func()
	for range 10 * maxSmallForwards {
		if done := try(); done != nil {
			dones = append(dones, done)
		}
	}
	if len(dones) != maxSmallForwards {
		t.Errorf("got %d lists forwarded at the same time, want %d", len(dones), maxSmallForwards)
	}
	dones[0]()
	done := try()
	if done == nil {
		t.Fatal("after one list is done, no other may be forwarded")
	}
	done()
	c.drop(reason.Upstream)
	if try() != nil {
		t.Error("a list may be forwarded though there is no state")
	}
}

// TestBeginForwardPage: if memory has not reached a list's revision, BeginForwardPage lets a small page of the list be forwarded,
// and requests a probe, so that memory reaches the revision.
func TestBeginForwardPage(t *testing.T) {
	const reached, notReached = manyAt, manyAt + 1
	small, large := index.Query{Limit: 1, Start: "n/0001"}, index.Query{Start: "n/0001"}
	for name, tt := range map[string]struct {
		query       index.Query
		revision    uint64
		wantForward bool
	}{
		"a small page, not reached": {query: small, revision: notReached, wantForward: true},
		"a small page, reached":     {query: small, revision: reached},
		"a large page, not reached": {query: large, revision: notReached},
	} {
		c := collectionOfMany()
		done := c.BeginForwardPage(tt.query, tt.revision)
		if forward := done != nil; forward != tt.wantForward {
			t.Errorf("%s: may be forwarded: got %t, want %t", name, forward, tt.wantForward)
		}
		if probes := len(c.probeRequests); (probes > 0) != tt.wantForward {
			t.Errorf("%s: got %d requested probes, want some: %t", name, probes, tt.wantForward)
		}
		if done != nil {
			done()
		}
	}
}
