package proxy

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestLastCheck: lastCheck lets an answer be written (None) only if nothing has changed on which the answer depends: the
// resource's definition, the state in memory, and the caller's right.
func TestLastCheck(t *testing.T) {
	now := time.Now()
	pods := cluster.Entry{Namespaced: true}
	state := snapshot.Snapshot{ListState: source.ListState{Revision: 7}, CurrentAt: now.Add(-time.Minute)}
	decided := &decision{entry: pods, state: state}
	unchanged := conditions{
		now:     now,
		entry:   pods,
		memory:  snapshot.Validity{Interval: snapshot.Interval{From: 7, To: 9}, Staleness: time.Hour},
		allowed: true,
	}
	for name, tt := range map[string]struct {
		change func(*conditions)
		want   reason.Reason
	}{
		"nothing changed":                    {change: func(*conditions) {}, want: reason.None},
		"nothing is known":                   {change: func(c *conditions) { *c = conditions{} }, want: reason.Warming},
		"the definitions may be out of date": {change: func(c *conditions) { c.whyNoEntry = reason.Upstream }, want: reason.Upstream},
		"the resource left the catalog": {
			change: func(c *conditions) {
				c.entry = cluster.Entry{}
				c.whyNoEntry = reason.UnknownResource
			},
			want: reason.UnknownResource,
		},
		"the resource became a custom resource":       {change: func(c *conditions) { c.entry.Custom = true }, want: reason.Warming},
		"the resource lost its namespaces":            {change: func(c *conditions) { c.entry.Namespaced = false }, want: reason.Warming},
		"the state is older than the staleness bound": {change: func(c *conditions) { c.now = now.Add(time.Hour) }, want: reason.Stale},
		"the state was lost":                          {change: func(c *conditions) { c.memory = snapshot.Validity{Unavailable: reason.Upstream} }, want: reason.Upstream},
		"history no longer has the revision":          {change: func(c *conditions) { c.memory.Interval.From = 8 }, want: reason.History},
		"the state was loaded anew": { // as after the loss of a state
			change: func(c *conditions) { c.memory.Epoch++ },
			want:   reason.Warming,
		},
		"the right expired": {change: func(c *conditions) { c.allowed = false }, want: reason.ReviewFailed},
		"the definitions may be out of date, and the state is stale": { // definitions are checked first
			change: func(c *conditions) {
				c.whyNoEntry = reason.Upstream
				c.memory.Unavailable = reason.Stale
			},
			want: reason.Upstream,
		},
	} {
		current := unchanged
		tt.change(&current)
		if got := lastCheck(decided, &current); got != tt.want {
			t.Errorf("%s: got reason %q, want %q", name, got, tt.want)
		}
	}
}

// TestChangeWhileWaitingForRoom: an answer waits for room (the right to hold its bytes in memory). Meanwhile the state, the
// definition or the server of its resource changes. Then the request is forwarded: nothing is written, no room is held, the
// audit log has no event, and no watch counts as ended.
func TestChangeWhileWaitingForRoom(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*modelWorld)
		want   reason.Reason
	}{
		"no change": {change: func(*modelWorld) {}, want: reason.None},
		"another server serves the resource for a moment": {
			change: func(w *modelWorld) {
				w.reroute(`{"namespace":"n","name":"s","port":443}`)
				w.reroute("") // back to kube-apiserver
			},
			want: reason.Warming,
		},
		"the definition is changed": {change: (*modelWorld).redefine, want: reason.Warming},
		"the definitions may be out of date": {
			change: func(w *modelWorld) {
				w.stallDefinitions()
				time.Sleep(snapshot.Skew + time.Second)
			},
			want: reason.Upstream,
		},
		"the state is dropped": {change: func(w *modelWorld) { w.loseState(time.Minute) }, want: reason.Warming},
		"the state is older than the staleness bound": {
			change: func(w *modelWorld) {
				w.changeAndCutFeeds(func() { w.feedsFail = true })
				time.Sleep(modelStaleness + time.Second)
			},
			want: reason.Stale,
		},
	} {
		for _, query := range []string{anyState, newestStreamingList + "&resourceVersion=0"} {
			// With an audit log, lastCheck is called before and after the event is written. Without one, it is called once.
			for _, audited := range []bool{true, false} {
				proxytest.Bubble(t, fmt.Sprintf("%s, %s, audited %t", name, query, audited), func(t *testing.T) {
					checkChangeWhileWaiting(t, query, audited, tt.change, tt.want)
				})
			}
		}
	}
}

// checkChangeWhileWaiting makes the change while the answer to query waits for room, and requires that the request is then
// forwarded for the reason want, or answered if want is None.
func checkChangeWhileWaiting(t *testing.T, query string, audited bool, change func(*modelWorld), want reason.Reason) {
	t.Helper()
	w := newModelWorld(t)
	log := &auditSink{}
	if audited {
		log = w.startAuditing()
	}
	w.load(t)
	// Other answers hold all room, so the request waits. Meanwhile the change happens.
	release := w.takeRoom(t, modelRoom)
	request := w.open(t, query)
	change(w)
	synctest.Wait()
	if got := request.received(t); got != "" {
		t.Errorf("got %q before there was room, want nothing", got)
	}
	// Now there is room.
	release()
	synctest.Wait()
	wantAnswer := want == reason.None
	if got := request.received(t); (got != "") != wantAnswer {
		t.Errorf("got the answer %q, want one: %t", got, wantAnswer)
	}
	if header := request.Header(); !wantAnswer && len(header) > 0 {
		t.Errorf("got the header %v, want none", header)
	}
	// The request ends, and leaves nothing behind.
	request.leave() // ends a watch that was answered
	<-request.done
	expect.Same(t, want, request.why)
	expect.Same(t, int64(0), w.roomInUse())
	if wantEvent := audited && wantAnswer; (log.Len() > 0) != wantEvent {
		t.Errorf("got the audit log %q, want an event: %t", log, wantEvent)
	}
	for _, collection := range w.handler.Collections.Stats() {
		watches := collection.Watches
		if watches.Open != 0 {
			t.Errorf("got %+v, want no open watch", watches)
		}
		if !wantAnswer && len(watches.Ended) > 0 {
			t.Errorf("got %+v, want no ended watch, since none has begun", watches)
		}
	}
}
