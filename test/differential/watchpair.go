package differential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/oracle"
)

// watchPair is one watch that is sent to both sides: to kube-apiserver (direct) and to listproxy (proxy). Either stream may be
// ahead of the other at any moment, so the two are not compared with each other. Each is compared with the track, which says
// what really happened: the track has kube-apiserver's list at an exact revision, and all events after that revision.
type watchPair struct {
	c        *comparator
	request  watchRequest
	readTime time.Duration // how long events are read before they are compared

	direct, proxy *stream
	track         *track // nil if kube-apiserver no longer has the revision where the track would begin
	// expected is what must be true of both streams. open fills it, except for UpTo. run sets UpTo when the events have been
	// read.
	expected oracle.Watch
}

const (
	// watchPatience is the longest wait for the header of a watch, and for events that are still missing.
	watchPatience = time.Minute
	// trackPatience is the longest wait for events that are missing in kube-apiserver's own stream. It is longer than
	// watchPatience: on a busy machine kube-apiserver may be late, and its speed is not what is tested.
	trackPatience = 5 * watchPatience
	// Events are read for a random time from minReadTime to maxReadTime before they are compared. A watch that is odd
	// ([question.Odd]) is read for oddReadTime.
	minReadTime = 100 * time.Millisecond
	maxReadTime = 3100 * time.Millisecond
	oddReadTime = 300 * time.Millisecond
)

// compareWatches compares watches until ctx ends.
func (c *comparator) compareWatches(ctx context.Context, seed uint64, workers int) {
	c.runWorkers(ctx, rand.New(rand.NewPCG(seed, watchesStream)), workers, func(ctx context.Context, g *generator) {
		if w, ok := g.randomWatch(); ok {
			c.compareWatch(ctx, g, w)
		}
	})
}

// readEtcdRevision reads etcd's current revision: every consistent list has it, here one of namespaces.
func (c *comparator) readEtcdRevision(ctx context.Context) (revision uint64, _ *difference) {
	a, err := c.direct.ask(ctx, question{Path: "/api/v1/namespaces", Query: url.Values{"limit": {"1"}}, User: c.cluster.Users[0]})
	if err == nil {
		revision, err = a.Revision()
	}
	if err != nil {
		return 0, newDifference(noAnswer, "%v", err)
	}
	return revision, nil
}

// oldestAllowed returns the lowest revision that a state from memory may have. That is the revision of the resource's last
// write that is older than bound (10 s, listproxy's --staleness-bound), but at least one from before listproxy started.
func (c *comparator) oldestAllowed(r cluster.Resource) uint64 {
	kind := r.GroupResource()
	return max(c.revisionsBefore[kind], c.cluster.Ledger.Before(kind, time.Now().Add(-bound)))
}

// compareWatch sends a watch to both sides, reads for a while, and compares the events. It tries up to maxTries times if the
// streams cannot be compared, for example since kube-apiserver lost the revision (incomparable). It adds a difference to the
// report.
func (c *comparator) compareWatch(ctx context.Context, g *generator, w watchRequest) {
	const maxTries = 8
	for range maxTries {
		readTime := minReadTime + time.Duration(g.rng.Int64N(int64(maxReadTime-minReadTime)))
		p := &watchPair{c: c, request: w, readTime: readTime}
		d := p.run(ctx)
		p.close()
		switch { // the first case that applies
		case ctx.Err() != nil: // the end of ctx has cut the streams
			return
		case d == nil:
			p.count()
			return
		case d.Kind != incomparable:
			d.Question = w.String()
			if p.proxy != nil {
				d.CacheStatus = p.proxy.Source()
			}
			c.report.addDifference(*d)
			return
		}
		c.report.count("asked again")
	}
	c.report.count("asked again, in vain")
}

// close ends both watches and the track.
func (p *watchPair) close() {
	for _, s := range []*stream{p.direct, p.proxy} {
		if s != nil {
			s.close()
		}
	}
	if p.track != nil {
		p.track.close()
	}
}

// run opens both watches, reads their events for a while, and returns how one of them is wrong, or nil. The caller calls close.
func (p *watchPair) run(ctx context.Context) *difference {
	// Step 1: the headers must be the same, and so must the bodies of answers other than 200.
	if d := p.open(ctx); d != nil {
		return d
	}
	d := p.c.difference(p.request.question, p.proxy.Answer, p.direct.Answer)
	if d != nil || p.direct.Code != http.StatusOK {
		return d
	}
	if p.request.Odd { // its events are not compared, only whether it ends
		clock.Sleep(ctx, oddReadTime)
		return p.awaitNoDifference(ctx, p.compareEnds)
	}
	// Step 2: after readTime, every event up to etcd's revision must come.
	clock.Sleep(ctx, p.readTime)
	newest, d := p.c.readEtcdRevision(ctx)
	if d != nil {
		return d
	}
	p.expected.UpTo = newest
	if d := p.awaitNoDifference(ctx, p.compareEvents); d != nil {
		return d
	}
	// Step 3: what does not depend on the track.
	if d := p.compareNewBookmarks(ctx); d != nil {
		return d
	}
	return p.checkRevisions(ctx)
}

// count counts the comparison and its events in the report.
func (p *watchPair) count() {
	for _, e := range p.proxy.soFar().events {
		p.c.report.count("events of type " + string(e.Type))
	}
	if p.proxy.FromMemory() && p.proxy.Header.Get("Content-Encoding") != "" {
		p.c.report.count("compressed, from memory")
	}
	w := p.request
	isAnswerable := w.shouldHit() && p.proxy.Code == http.StatusOK
	p.c.report.addComparison(w.question, p.proxy.Answer, isAnswerable,
		"representation "+string(w.Representation), "selector "+string(w.selectorKind()), "scope "+string(w.scopeCovered()),
		fmt.Sprintf("resourceVersion=%s sendInitialEvents=%s", w.start, w.initial))
}

// compareNewBookmarks compares bookmarks of a kind ([bookmarkKind]) that so far only listproxy has sent. If there are any, it
// sends kube-apiserver a watch of three seconds, in which kube-apiserver sends bookmarks, too.
func (p *watchPair) compareNewBookmarks(ctx context.Context) *difference {
	proxy := p.proxy.soFar()
	if !p.c.bookmarks.hasNewKind(p.request, proxy.events) {
		return nil
	}
	q := p.request.watchFrom(p.expected.UpTo)
	q.Query.Set("allowWatchBookmarks", "true")
	q.Query.Set("timeoutSeconds", "3") // kube-apiserver sends a bookmark two seconds before the end
	if p.c.watchList {
		q.Query.Set("sendInitialEvents", "true")
		q.Query.Set("resourceVersionMatch", "NotOlderThan")
	}
	s, err := openStream(ctx, p.c.direct, q)
	if err != nil {
		return newDifference(noAnswer, "%v", err)
	}
	defer s.close()
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	if d := p.c.bookmarks.compare(p.request, s.soFar().events, nil); d != nil {
		return d
	}
	if p.c.bookmarks.hasNewKind(p.request, proxy.events) {
		p.c.report.count("bookmarks of a sort that only listproxy has sent")
	}
	return nil
}

// checkRevisions returns a difference if an event from listproxy has a higher revision than etcd. It takes the events first,
// and then reads etcd's revision.
func (p *watchPair) checkRevisions(ctx context.Context) *difference {
	events := p.proxy.soFar().events
	newest, d := p.c.readEtcdRevision(ctx)
	if d != nil {
		return d
	}
	for _, e := range events {
		if e.Revision > newest {
			return newDifference(wrongEvents, "%v, and the newest revision is %d", e, newest)
		}
	}
	return nil
}

// open opens the track, then sends the watch to both sides, and fills p.expected except for UpTo.
//
// Say 90 is the oldest revision that a state may have, and etcd is at 100 when both headers have come. A watch that begins with
// initial events may have those of any revision from 90 (MinRevision) to 100 (MaxRevision), so the track begins at 90 (From). A
// watch from revision 95 has the events after 95, so its track begins at 95.
func (p *watchPair) open(ctx context.Context) *difference {
	w, ledger := p.request, p.c.cluster.Ledger
	begins, endsInitial := w.begins()
	oldest := p.c.oldestAllowed(w.Resource)
	p.expected = oracle.Watch{
		Begins: begins, EndsInitial: endsInitial, Bookmarks: w.bookmarks, Revision: w.Revision, MinRevision: oldest, From: oldest,
	}
	if begins == oracle.FromRevision {
		p.expected.From = min(w.Revision, ledger.NewestOfAll()) // the revision may be of the future, where no track can begin
	}
	var trackErr, directErr, proxyErr error
	if !w.Odd {
		p.track, trackErr = openTrack(ctx, p.c.direct, w, p.expected.From)
	}
	if w.start == fromUnset { // it must have every write that is confirmed before it is sent, now
		p.expected.MinRevision = max(oldest, ledger.NewestOfAll())
	}
	var all sync.WaitGroup
	all.Go(func() { p.direct, directErr = openStream(ctx, p.c.direct, w.question) })
	all.Go(func() { p.proxy, proxyErr = openStream(ctx, p.c.proxy, w.question) })
	all.Wait()
	if err := errors.Join(directErr, proxyErr, trackErr); err != nil {
		return newDifference(noAnswer, "%v", err)
	}
	var d *difference
	p.expected.MaxRevision, d = p.c.readEtcdRevision(ctx)
	return d
}

// awaitNoDifference calls compare until it finds no difference, since events may be on their way. After watchPatience it
// returns the last difference. It waits longer, for trackPatience, while kube-apiserver's own stream is wrong (wrongReference).
func (p *watchPair) awaitNoDifference(ctx context.Context, compare func() *difference) *difference {
	const pause = 20 * time.Millisecond
	for started := time.Now(); ; clock.Sleep(ctx, pause) {
		d := compare()
		if d == nil || d.Kind == incomparable {
			return d
		}
		maxWait := watchPatience
		if d.Kind == wrongReference {
			maxWait = trackPatience
		}
		if time.Since(started) > maxWait || ctx.Err() != nil {
			return d
		}
	}
}

// compareEvents compares the events that both sides have sent so far with the track. If a side has ended with an ERROR event,
// it compares only that event.
func (p *watchPair) compareEvents() *difference {
	direct, proxy := p.direct.soFar(), p.proxy.soFar()
	if proxy.err != nil || direct.err != nil {
		return newDifference(wrongEnd, "listproxy's stream: %v, and kube-apiserver's: %v", proxy.err, direct.err)
	}
	if endsWithError(direct.events) || endsWithError(proxy.events) {
		return p.compareErrors(direct.events, proxy.events)
	}
	if p.track == nil {
		return newDifference(incomparable, "kube-apiserver has no state at the revision where the track begins")
	}
	if p.track.hasEnded() {
		p.c.report.addLost()
		return newDifference(incomparable, lostRevision)
	}
	hasTimeout := p.request.seconds > 0 // the two sides may then end at slightly different moments
	if !hasTimeout && direct.hasEnded != proxy.hasEnded {
		return newDifference(wrongEnd, "after %d events: %t, and kube-apiserver's after %d: %t",
			len(proxy.events), proxy.hasEnded, len(direct.events), direct.hasEnded)
	}
	expected := p.expected
	expected.State = p.track.state
	expected.Events = p.track.events()
	if err := expected.Judge(direct.events, direct.hasEnded); err != nil {
		return newDifference(wrongReference, "%v", err)
	}
	if err := expected.Judge(proxy.events, proxy.hasEnded); err != nil {
		return newDifference(wrongEvents, "%v", err)
	}
	return p.c.bookmarks.compare(p.request, direct.events, proxy.events)
}

// endsWithError reports whether the last event is an ERROR.
func endsWithError(events []oracle.Event) bool {
	return len(events) > 0 && events[len(events)-1].Type == watch.Error
}

// revisionsInError matches the revisions in the message of an ERROR. The current revision differs each time.
var revisionsInError = regexp.MustCompile(`current: \d+|\(\d+\)`)

// compareErrors compares the events of both sides if at least one side ends with an ERROR. Both must send the same ERROR. It is
// a difference if only one side sends an ERROR, except in two cases, in which the two sides cannot be compared:
//
//   - The watch is from a revision of the near future (fromFuture). One side may reach the revision, and the other give up.
//   - kube-apiserver has lost the events after the watch's revision. listproxy may keep them for longer, and has sent some.
func (p *watchPair) compareErrors(direct, proxy []oracle.Event) *difference {
	directRefuses, proxyRefuses := endsWithError(direct), endsWithError(proxy)
	switch { // the first case that applies
	case directRefuses && proxyRefuses:
		if len(direct) != len(proxy) {
			return newDifference(incomparable, "refused after other events")
		}
		got, want := proxy[len(proxy)-1].Object, direct[len(direct)-1].Object
		if !bytes.Equal(revisionsInError.ReplaceAll(got, nil), revisionsInError.ReplaceAll(want, nil)) {
			return newDifference(wrongRefusal, "%s", oracle.Difference(got, want))
		}
		p.c.report.count("refused by both")
		return nil
	case p.request.start == fromFuture:
		return newDifference(incomparable, "the revision came in the meantime, or one side gave up before")
	case directRefuses && p.request.start != fromDistant && len(proxy) > 0: // after a distant revision no events can come
		p.c.report.addLost()
		return newDifference(incomparable, lostRevision)
	}
	return newDifference(wrongRefusal, "%d events, of which the last is a refusal: %t; kube-apiserver's %d: %t",
		len(proxy), proxyRefuses, len(direct), directRefuses)
}

// compareEnds returns a difference unless both streams have ended after the same number of events, or both go on.
func (p *watchPair) compareEnds() *difference {
	direct, proxy := p.direct.soFar(), p.proxy.soFar()
	bothGoOn := !direct.hasEnded && !proxy.hasEnded
	bothEnded := direct.hasEnded && proxy.hasEnded && len(direct.events) == len(proxy.events)
	bothFailedOrNone := (direct.err == nil) == (proxy.err == nil)
	if (bothGoOn || bothEnded) && bothFailedOrNone {
		return nil
	}
	return newDifference(wrongEnd, "%d events, ended: %t, %v; kube-apiserver's %d: %t, %v",
		len(proxy.events), proxy.hasEnded, proxy.err, len(direct.events), direct.hasEnded, direct.err)
}
