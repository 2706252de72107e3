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

// watchPatience ends a wait for the header or for events of a watch.
const watchPatience = time.Minute

// watches compares watches until ctx ends.
func (c *comparator) watches(ctx context.Context, seed uint64, workers int) {
	c.run(ctx, rand.New(rand.NewPCG(seed, 5)), workers, func(ctx context.Context, g *generator) {
		if w, ok := g.watch(); ok {
			c.compareWatch(ctx, g, w)
		}
	})
}

// currentRevision returns etcd's revision.
func (c *comparator) currentRevision(ctx context.Context) (revision uint64, _ *difference) {
	a, err := c.direct.ask(ctx, question{Path: "/api/v1/namespaces", Query: url.Values{"limit": {"1"}}, User: c.cluster.Users[0]})
	if err == nil {
		revision, err = a.Revision()
	}
	if err != nil {
		return 0, differs(noAnswer, "%v", err)
	}
	return revision, nil
}

// oldestAllowed returns the lowest revision that a state of a resource may have: that of the last write before bound ago.
func (c *comparator) oldestAllowed(r cluster.Resource) uint64 {
	kind := r.GroupResource()
	return max(c.begun[kind], c.cluster.Ledger.Before(kind, time.Now().Add(-bound)))
}

// compareWatch sends a watch to both sides, reads for a while, and compares. It tries again if the two cannot be compared.
func (c *comparator) compareWatch(ctx context.Context, g *generator, w watchRequest) {
	const maxTries = 8
	for range maxTries {
		p := &watchPair{comparator: c, watchRequest: w, readTime: time.Duration(100+g.rng.IntN(3000)) * time.Millisecond}
		d := p.run(ctx)
		p.close()
		switch {
		case ctx.Err() != nil:
			return
		case d == nil:
			p.compared()
			return
		case d.Kind != elsewhere:
			d.Question = w.String()
			if p.proxied != nil {
				d.CacheStatus = p.proxied.Source()
			}
			c.report.differs(*d)
			return
		}
		c.report.count("asked again")
	}
	c.report.count("asked again, in vain")
}

// watchPair is one watch at both sides.
type watchPair struct {
	*comparator
	watchRequest
	readTime time.Duration // before the comparison

	served, proxied *stream // by kube-apiserver, and by listproxy
	truth           *track
	wants           oracle.Watch
}

// close ends both watches and the track.
func (p *watchPair) close() {
	for _, s := range []*stream{p.served, p.proxied} {
		if s != nil {
			s.close()
		}
	}
	if p.truth != nil {
		p.truth.close()
	}
}

// run opens both watches and returns how they differ.
func (p *watchPair) run(ctx context.Context) (d *difference) {
	if d := p.open(ctx); d != nil {
		return d
	}
	if d := p.difference(p.question, p.proxied.Answer, p.served.Answer); d != nil || p.served.Code != http.StatusOK {
		return d
	}
	if p.Odd { // only ends are compared
		clock.Sleep(ctx, 300*time.Millisecond)
		return p.settle(ctx, p.endsAlike)
	}
	clock.Sleep(ctx, p.readTime)
	if p.wants.UpTo, d = p.currentRevision(ctx); d != nil {
		return d
	}
	if d := p.settle(ctx, p.look); d != nil {
		return d
	}
	if d := p.learnBookmarks(ctx); d != nil {
		return d
	}
	return p.checkFuture(ctx)
}

// compared counts the comparison and its events in the report.
func (p *watchPair) compared() {
	events, _, _ := p.proxied.received()
	for _, e := range events {
		p.report.count("events of type " + string(e.Type))
	}
	if p.proxied.FromMemory() && p.proxied.Header.Get("Content-Encoding") != "" {
		p.report.count("compressed, from memory")
	}
	p.report.compared(p.question, p.proxied.Answer, p.watchRequest.memory() && p.proxied.Code == http.StatusOK,
		"representation "+string(p.Representation), "selector "+string(p.selector()), "scope "+string(p.scope()),
		fmt.Sprintf("resourceVersion=%s sendInitialEvents=%s", p.start, p.initial))
}

// learnBookmarks compares a bookmark of a sort that only listproxy has sent so far: it has kube-apiserver send one.
func (p *watchPair) learnBookmarks(ctx context.Context) *difference {
	proxied, _, _ := p.proxied.received()
	if !p.sent.unserved(p.watchRequest, proxied) {
		return nil
	}
	q := p.watchFrom(p.wants.UpTo)
	q.Query.Set("allowWatchBookmarks", "true")
	q.Query.Set("timeoutSeconds", "3") // kube-apiserver sends a bookmark two seconds before the end
	if p.comparator.watchList {
		q.Query.Set("sendInitialEvents", "true")
		q.Query.Set("resourceVersionMatch", "NotOlderThan")
	}
	s, err := openStream(ctx, p.direct, q)
	if err != nil {
		return differs(noAnswer, "%v", err)
	}
	defer s.close()
	select {
	case <-s.read:
	case <-ctx.Done():
	}
	served, _, _ := s.received()
	if d := p.sent.differ(p.watchRequest, served, nil); d != nil {
		return d
	}
	if p.sent.unserved(p.watchRequest, proxied) {
		p.report.count("bookmarks of a sort that only listproxy has sent")
	}
	return nil
}

// checkFuture requires that no event of listproxy's has a revision above etcd's.
func (p *watchPair) checkFuture(ctx context.Context) *difference {
	events, _, _ := p.proxied.received()
	newest, d := p.currentRevision(ctx)
	if d != nil {
		return d
	}
	for _, e := range events {
		if e.Revision > newest {
			return differs(wrongEvents, "%v, and the newest revision is %d", e, newest)
		}
	}
	return nil
}

// open opens the track, and then the watch at both sides.
func (p *watchPair) open(ctx context.Context) *difference {
	p.wants = oracle.Watch{Bookmarks: p.bookmarks, Revision: p.Revision, MinRevision: p.oldestAllowed(p.Resource)}
	p.wants.Begins, p.wants.EndsInitial = p.begins()
	p.wants.From = p.wants.MinRevision
	if p.wants.Begins == oracle.FromRevision {
		p.wants.From = min(p.Revision, p.cluster.Ledger.NewestOfAll())
	}
	var failures [3]error
	if !p.Odd {
		p.truth, failures[2] = openTrack(ctx, p.direct, p.watchRequest, p.wants.From)
	}
	if p.start == fromUnset {
		p.wants.MinRevision = max(p.wants.MinRevision, p.cluster.Ledger.NewestOfAll())
	}
	var all sync.WaitGroup
	all.Go(func() { p.served, failures[0] = openStream(ctx, p.direct, p.question) })
	all.Go(func() { p.proxied, failures[1] = openStream(ctx, p.proxy, p.question) })
	all.Wait()
	if err := errors.Join(failures[:]...); err != nil {
		return differs(noAnswer, "%v", err)
	}
	var d *difference
	p.wants.MaxRevision, d = p.currentRevision(ctx)
	return d
}

// settle repeats look until there is no difference, and returns the last difference if that takes longer than
// watchPatience. On a busy machine two streams of kube-apiserver's may differ for longer, which is not what is tested.
func (p *watchPair) settle(ctx context.Context, look func() *difference) *difference {
	for begun := time.Now(); ; clock.Sleep(ctx, 20*time.Millisecond) {
		d := look()
		patience := watchPatience
		if d != nil && d.Kind == wrongReference {
			patience *= 5
		}
		if d == nil || d.Kind == elsewhere || time.Since(begun) > patience || ctx.Err() != nil {
			return d
		}
	}
}

// look compares the events of both sides so far with the track.
func (p *watchPair) look() *difference {
	served, servedEnded, servedErr := p.served.received()
	proxied, proxiedEnded, proxiedErr := p.proxied.received()
	if proxiedErr != nil || servedErr != nil {
		return differs(wrongEnd, "listproxy's stream: %v, and kube-apiserver's: %v", proxiedErr, servedErr)
	}
	if d, done := p.refusals(served, proxied); d != nil || done {
		return d
	}
	if p.truth == nil {
		return differs(elsewhere, "a revision that is too old")
	}
	if p.truth.ended() {
		p.report.count(expired)
		return differs(elsewhere, expired)
	}
	if p.seconds == 0 && servedEnded != proxiedEnded {
		return differs(wrongEnd, "after %d events: %t, and kube-apiserver's after %d: %t", len(proxied), proxiedEnded, len(served), servedEnded)
	}
	wants := p.wants
	wants.State, wants.Events = p.truth.state, p.truth.events()
	if err := wants.Judge(served, servedEnded); err != nil {
		return differs(wrongReference, "%v", err)
	}
	if err := wants.Judge(proxied, proxiedEnded); err != nil {
		return differs(wrongEvents, "%v", err)
	}
	return p.sent.differ(p.watchRequest, served, proxied)
}

// numbers matches kube-apiserver's current revision in an ERROR.
var numbers = regexp.MustCompile(`current: \d+|\(\d+\)`)

// refusals compares ERROR events. It is done if a side has one, and d is nil if these are equal or may differ.
func (p *watchPair) refusals(served, proxied []oracle.Event) (d *difference, done bool) {
	refused := func(events []oracle.Event) bool { return len(events) > 0 && events[len(events)-1].Type == watch.Error }
	switch {
	case !refused(served) && !refused(proxied):
		return nil, false
	case refused(served) && refused(proxied):
		if len(served) != len(proxied) {
			return differs(elsewhere, "refused after other events"), true
		}
		got, want := proxied[len(proxied)-1].Object, served[len(served)-1].Object
		if !bytes.Equal(numbers.ReplaceAll(got, nil), numbers.ReplaceAll(want, nil)) {
			return differs(wrongRefusal, "%s", oracle.Difference(got, want)), true
		}
		p.report.count("refused by both")
		return nil, true
	case p.start == fromFuture:
		return differs(elsewhere, "the revision came in the meantime, or one side gave up before"), true
	case refused(served) && p.start != fromDistant && len(proxied) > 0:
		// listproxy may keep a longer history than kube-apiserver.
		p.report.count(expired)
		return differs(elsewhere, expired), true
	}
	return differs(wrongRefusal, "%d events, of which the last is a refusal: %t; kube-apiserver's %d: %t",
		len(proxied), refused(proxied), len(served), refused(served)), true
}

// endsAlike requires that both streams have ended after equally many events, or neither.
func (p *watchPair) endsAlike() *difference {
	served, servedEnded, servedErr := p.served.received()
	proxied, proxiedEnded, proxiedErr := p.proxied.received()
	sameEnd := servedEnded == proxiedEnded && (servedErr == nil) == (proxiedErr == nil)
	if sameEnd && (!servedEnded || len(served) == len(proxied)) {
		return nil
	}
	return differs(wrongEnd, "%d events, ended: %t, %v; kube-apiserver's %d: %t, %v",
		len(proxied), proxiedEnded, proxiedErr, len(served), servedEnded, servedErr)
}
