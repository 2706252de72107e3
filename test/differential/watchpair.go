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

const (
	// watchPatience bounds a wait for the header or for events of a watch.
	watchPatience = time.Minute
	// trackPatience bounds a wait until kube-apiserver's own watch fits the track. It is longer than watchPatience: on a busy
	// machine kube-apiserver may be late, and its speed is not what is tested.
	trackPatience = 5 * watchPatience
	// A watch is read for minReadTime to maxReadTime before it is compared, and an odd one for oddReadTime.
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

// currentRevision returns etcd's revision, which is that of a list of namespaces.
func (c *comparator) currentRevision(ctx context.Context) (revision uint64, _ *difference) {
	a, err := c.direct.ask(ctx, question{Path: "/api/v1/namespaces", Query: url.Values{"limit": {"1"}}, User: c.cluster.Users[0]})
	if err == nil {
		revision, err = a.Revision()
	}
	if err != nil {
		return 0, newDifference(noAnswer, "%v", err)
	}
	return revision, nil
}

// oldestAllowed returns the lowest revision that a state of a resource may have: that of the last write that is older than
// bound.
func (c *comparator) oldestAllowed(r cluster.Resource) uint64 {
	kind := r.GroupResource()
	return max(c.revisionsBefore[kind], c.cluster.Ledger.Before(kind, time.Now().Add(-bound)))
}

// compareWatch sends a watch to both sides, reads for a while, and compares the events. If they cannot be compared
// (incomparable), it tries again, up to maxTries times. A difference is added to the report.
func (c *comparator) compareWatch(ctx context.Context, g *generator, w watchRequest) {
	const maxTries = 8
	for range maxTries {
		readTime := minReadTime + time.Duration(g.rng.Int64N(int64(maxReadTime-minReadTime)))
		p := &watchPair{c: c, request: w, readTime: readTime}
		d := p.run(ctx)
		p.close()
		switch {
		case ctx.Err() != nil:
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

// watchPair is one watch that is sent to both sides. Each side's stream is compared with the track, which has the truth: a list
// at an exact revision and all events after that. The two streams are not compared with each other, since each may be ahead of
// the other.
type watchPair struct {
	c        *comparator
	request  watchRequest
	readTime time.Duration // before the comparison

	direct, proxy *stream      // of kube-apiserver, and of listproxy
	track         *track       // nil if kube-apiserver no longer has the revision
	expected      oracle.Watch // what must be true of both streams; run and open fill it
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

// run opens both watches, reads them for a while, and returns how they differ. The caller calls close.
func (p *watchPair) run(ctx context.Context) *difference {
	// The headers, and the bodies of refusals.
	if d := p.open(ctx); d != nil {
		return d
	}
	d := p.c.difference(p.request.question, p.proxy.Answer, p.direct.Answer)
	if d != nil || p.direct.Code != http.StatusOK {
		return d
	}
	if p.request.Odd { // only ends are compared
		clock.Sleep(ctx, oddReadTime)
		return p.awaitEqual(ctx, p.compareEnds)
	}
	// The events: each that was written before this moment must come.
	clock.Sleep(ctx, p.readTime)
	newest, d := p.c.currentRevision(ctx)
	if d != nil {
		return d
	}
	p.expected.UpTo = newest
	if d := p.awaitEqual(ctx, p.compareEvents); d != nil {
		return d
	}
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

// compareNewBookmarks compares the bookmarks of kinds that only listproxy has sent so far. It sends kube-apiserver a watch that
// gets such a bookmark.
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

// checkRevisions returns a difference if an event from listproxy has a higher revision than etcd has reached.
func (p *watchPair) checkRevisions(ctx context.Context) *difference {
	events := p.proxy.soFar().events
	newest, d := p.c.currentRevision(ctx)
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

// open opens the track, and then the watch at both sides, and fills p.expected except for UpTo. A watch that begins with a
// state must begin with that of a revision from MinRevision to MaxRevision. The track begins early enough for all of them, at
// From.
func (p *watchPair) open(ctx context.Context) *difference {
	w := p.request
	p.expected = oracle.Watch{Bookmarks: w.bookmarks, Revision: w.Revision, MinRevision: p.c.oldestAllowed(w.Resource)}
	p.expected.Begins, p.expected.EndsInitial = w.begins()
	p.expected.From = p.expected.MinRevision
	if p.expected.Begins == oracle.FromRevision {
		p.expected.From = min(w.Revision, p.c.cluster.Ledger.NewestOfAll())
	}
	var trackErr, directErr, proxyErr error
	if !w.Odd {
		p.track, trackErr = openTrack(ctx, p.c.direct, w, p.expected.From)
	}
	if w.start == fromUnset { // every write that was confirmed before the watch is sent
		p.expected.MinRevision = max(p.expected.MinRevision, p.c.cluster.Ledger.NewestOfAll())
	}
	var all sync.WaitGroup
	all.Go(func() { p.direct, directErr = openStream(ctx, p.c.direct, w.question) })
	all.Go(func() { p.proxy, proxyErr = openStream(ctx, p.c.proxy, w.question) })
	all.Wait()
	if err := errors.Join(directErr, proxyErr, trackErr); err != nil {
		return newDifference(noAnswer, "%v", err)
	}
	var d *difference
	p.expected.MaxRevision, d = p.c.currentRevision(ctx)
	return d
}

// awaitEqual repeats compare until there is no difference, since events may be on their way. It returns the last difference
// after watchPatience, or after trackPatience if that is of the kind wrongReference.
func (p *watchPair) awaitEqual(ctx context.Context, compare func() *difference) *difference {
	const pause = 20 * time.Millisecond
	for started := time.Now(); ; clock.Sleep(ctx, pause) {
		d := compare()
		patience := watchPatience
		if d != nil && d.Kind == wrongReference {
			patience = trackPatience
		}
		if d == nil || d.Kind == incomparable || time.Since(started) > patience || ctx.Err() != nil {
			return d
		}
	}
}

// compareEvents compares the events of both sides so far with the track.
func (p *watchPair) compareEvents() *difference {
	direct, proxy := p.direct.soFar(), p.proxy.soFar()
	if proxy.err != nil || direct.err != nil {
		return newDifference(wrongEnd, "listproxy's stream: %v, and kube-apiserver's: %v", proxy.err, direct.err)
	}
	if isRefused(direct.events) || isRefused(proxy.events) {
		return p.compareRefusals(direct.events, proxy.events)
	}
	if p.track == nil {
		return newDifference(incomparable, "kube-apiserver has no state at the revision where the track begins")
	}
	if p.track.hasEnded() {
		p.c.report.addLost()
		return newDifference(incomparable, lostRevision)
	}
	if p.request.seconds == 0 && direct.hasEnded != proxy.hasEnded {
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

// isRefused reports whether the events end with an ERROR.
func isRefused(events []oracle.Event) bool {
	return len(events) > 0 && events[len(events)-1].Type == watch.Error
}

// revisionsOfError matches the revisions in the message of an ERROR. The current revision differs each time.
var revisionsOfError = regexp.MustCompile(`current: \d+|\(\d+\)`)

// compareRefusals compares the events of both sides if at least one side ends with an ERROR. Both must send the same ERROR. If
// only one does, it has a known reason in some cases, in which the two cannot be compared. Otherwise that is a difference.
func (p *watchPair) compareRefusals(direct, proxy []oracle.Event) *difference {
	switch {
	case isRefused(direct) && isRefused(proxy):
		if len(direct) != len(proxy) {
			return newDifference(incomparable, "refused after other events")
		}
		got, want := proxy[len(proxy)-1].Object, direct[len(direct)-1].Object
		if !bytes.Equal(revisionsOfError.ReplaceAll(got, nil), revisionsOfError.ReplaceAll(want, nil)) {
			return newDifference(wrongRefusal, "%s", oracle.Difference(got, want))
		}
		p.c.report.count("refused by both")
		return nil
	case p.request.start == fromFuture:
		return newDifference(incomparable, "the revision came in the meantime, or one side gave up before")
	case isRefused(direct) && p.request.start != fromDistant && len(proxy) > 0:
		// listproxy may keep a longer history than kube-apiserver.
		p.c.report.addLost()
		return newDifference(incomparable, lostRevision)
	}
	return newDifference(wrongRefusal, "%d events, of which the last is a refusal: %t; kube-apiserver's %d: %t",
		len(proxy), isRefused(proxy), len(direct), isRefused(direct))
}

// compareEnds returns a difference unless both streams have ended after the same number of events, or both go on.
func (p *watchPair) compareEnds() *difference {
	direct, proxy := p.direct.soFar(), p.proxy.soFar()
	isSameEnd := direct.hasEnded == proxy.hasEnded && (direct.err == nil) == (proxy.err == nil)
	if isSameEnd && (!direct.hasEnded || len(direct.events) == len(proxy.events)) {
		return nil
	}
	return newDifference(wrongEnd, "%d events, ended: %t, %v; kube-apiserver's %d: %t, %v",
		len(proxy.events), proxy.hasEnded, proxy.err, len(direct.events), direct.hasEnded, direct.err)
}
